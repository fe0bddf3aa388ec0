"""Read the output of nccl-tests and rccl-tests, whatever happened to it on the way.

A log holds one or more tables, one per run of a binary (``all_reduce_perf``, ...), each a few ``#`` lines and then rows

    size(B)  count  type  [redop]  [root]   time(us) algbw busbw #wrong   [time algbw busbw #wrong]

with the out-of-place figures first.  Real logs are cut short, carry prefixes (``[1,0]<stdout>:``, time stamps, pod names),
and are interleaved with NCCL INFO lines or with another rank's output, in the middle of a line if it must be.  So a row
counts only if its figures agree with each other (algbw = size / time within what the printing rounds away), and every
line that is not a row is counted under the reason why: ``rows + sum(ignored.values()) == lines``, always.

What a log does not say is derived: the collective from the name of the binary, else from the file's name, else from the
columns (a reduction, a root) and the ratio busbw / algbw; the ranks from the ``# Rank`` lines, else from the same ratio.
"""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .errors import SweepError

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
    "hypercube",
)
ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "all2all": "alltoall",
    "send_recv": "sendrecv",
}

_PREFIX = re.compile(
    r"^(?:\[[^\]\n]*\](?:<\w+>)?:?\s*|<std(?:out|err)>:?\s*|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s+"
    r"|[A-Za-z][\w.-]*-[\w.-]+:\s+|\d+:\s+|\x1b\[[\d;]*m)+"
)
_NUMBER = re.compile(r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")
_TYPES = {
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
    "fp8_e4m3",
    "fp8_e5m2",
    "f8e4m3",
    "f8e5m2",
    "char",
    "int",
    "int32_t",
    "float16",
    "float32",
}
_BINARY = re.compile(r"\b(\w+?)_perf(?:\b|_)")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+(\d+)\s*(?:\[[^\]]*\])?\s*(.*)", re.IGNORECASE)
_VERSION = re.compile(r"(?:NCCL|RCCL) version\s*:?\s*(\d+\.\d+(?:\.\d+)?)|nccl-library=(\d+)", re.IGNORECASE)


class Curve(NamedTuple):
    """One measured collective: ``seconds`` (and ``in_place_seconds``, NaN where not printed) against ``sizes`` in bytes.

    ``sizes`` are nccl-tests' own: the full buffer, also for all_gather and reduce_scatter.  ``nodes`` is 0 and
    ``accelerator``, ``fabric``, ``version`` are empty where unknown.
    """

    collective: str
    ranks: int
    nodes: int
    sizes: np.ndarray
    seconds: np.ndarray
    in_place_seconds: np.ndarray
    name: str = ""
    accelerator: str = ""
    fabric: str = ""
    version: str = ""
    wrong: int = 0


class Log(NamedTuple):
    """What a file held: its curves, and every line that gave no row, counted by reason."""

    curves: tuple
    rows: int
    lines: int
    ignored: dict


def bus_factor(collective, ranks):
    """Bytes each rank must move over the buffer's size: busbw = algbw * factor, nccl-tests' convention."""
    if collective == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube"):
        return (ranks - 1) / ranks
    return 1.0


def read_log(path, collective=None, ranks=None):
    """The ``Log`` of a file; ``collective`` and ``ranks`` say what the file does not."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise SweepError(
            f"{path}: {error.strerror or error}. Give the path of an nccl-tests or rccl-tests output."
        ) from None
    return parse_log(text, path.stem, collective, ranks)


def parse_log(text, name="log", collective=None, ranks=None):
    """The ``Log`` of a text.  Never raises on what the text contains: a line is a row, or it is counted in ``ignored``."""
    collective = ALIASES.get(collective, collective)
    tables, ignored, table = [], Counter(), None
    lines = re.split(r"\r\n|\n|\r", text)
    if lines and not lines[-1]:
        lines.pop()
    state = _State()
    for line in lines:
        body = _PREFIX.sub("", line).strip()
        reason = _comment(body, state)
        if reason is None:
            row, reason = _row(body)
            if row is not None:
                if table is None or state.fresh or table.restarts(row):
                    table = _Table(state.collective, dict(state.hosts), state.accelerator, state.version)
                    tables.append(table)
                    state.fresh = False
                table.rows.append(row)
        if reason:
            ignored[reason] += 1
    rows = sum(len(t.rows) for t in tables)
    curves = [
        t.curve(f"{name}#{i + 1}" if len(tables) > 1 else name, collective or _word(name), ranks)
        for i, t in enumerate(tables)
    ]
    return Log(tuple(curves), rows, len(lines), dict(ignored))


class _State:
    """What the lines so far said about the table that comes next."""

    def __init__(self):
        self.collective, self.hosts, self.accelerator, self.version, self.fresh = "", {}, "", "", True


def _comment(body, state):
    """The reason to ignore a line that cannot be a row, after learning from it; None for a candidate row."""
    if not body:
        return "blank"
    if version := _VERSION.search(body):
        number = version.group(1) or version.group(2)
        state.version = (
            number if "." in number else f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"
        )
    if "NCCL INFO" in body or "NCCL WARN" in body or "NCCL TRACE" in body:
        return "NCCL_DEBUG output"
    if (binary := _BINARY.search(body)) and _word(binary.group(1)):
        state.collective, state.fresh = _word(binary.group(1)), True
    if not body.startswith("#"):
        return "version" if version else None
    if rank := _RANK.search(body):
        if int(rank.group(1)) in state.hosts and state.fresh is False:
            state.hosts = {}
        if int(rank.group(1)) == 0:
            state.hosts, state.fresh = {}, True
        state.hosts[int(rank.group(1))] = rank.group(2)
        state.accelerator = rank.group(4).strip() or state.accelerator
    if "nThread" in body or "out-of-place" in body or re.search(r"#\s*size\s+count", body):
        state.fresh = True
    return "comment"


def _row(body):
    """(row, "") of a line that is one, else (None, reason).  A row is (size, redop, root, out (us, algbw, busbw, wrong), in)."""
    words = body.split()
    if len(words) < 6 or not words[0].isdigit():
        return None, "not a row"
    if not words[1].isdigit() or words[2].lower() not in _TYPES:
        return None, "torn row" if words[1].isdigit() else "not a row"
    rest, redop, root = words[3:], "", None
    if not _NUMBER.match(rest[0]) and rest[0] != "N/A":
        redop, rest = rest[0].lower(), rest[1:]
    if len(rest) in (5, 9):
        if not re.fullmatch(r"-?\d+", rest[0]):
            return None, "torn row"
        root, rest = int(rest[0]), rest[1:]
    if len(rest) not in (4, 8) or not all(_NUMBER.match(w) or w == "N/A" for w in rest):
        return None, "torn row"
    values = [float("nan") if w == "N/A" else float(w) for w in rest]
    size, out, back = float(words[0]), values[:4], values[4:] or [float("nan")] * 4
    if size == 0:
        return None, "empty size"
    if not _agrees(size, out) or (len(rest) == 8 and not _agrees(size, back)):
        return None, "figures disagree"
    return (size, redop, root, out, back), ""


def _agrees(size, figures):
    """Whether algbw = size / time, within 2 % and the two decimals that are printed."""
    us, algbw, busbw, _ = figures
    if us != us and algbw != algbw:
        return True
    if not (us > 0 and algbw >= 0 and busbw >= 0):
        return False
    true = size / us / 1e3
    return abs(true - algbw) <= 0.0051 + 0.02 * true


class _Table:
    def __init__(self, collective, hosts, accelerator, version):
        self.collective, self.hosts, self.accelerator, self.version, self.rows = (
            collective,
            hosts,
            accelerator,
            version,
            [],
        )

    def restarts(self, row):
        """A smaller size, or another reduction or column set, begins another table even where its header is lost."""
        return bool(self.rows) and (row[0] <= self.rows[-1][0] or row[1] != self.rows[-1][1])

    def curve(self, name, collective, ranks):
        rows = [r for r in self.rows if r[3][0] == r[3][0]] or self.rows
        ratio = _ratio(rows)
        collective = self.collective or collective or _guess(rows, ratio)
        ranks = ranks or len(self.hosts) or _ranks(collective, ratio)
        column = lambda side, k: np.array([r[side][k] for r in rows], dtype=np.float64)
        wrong = int(np.nansum(column(3, 3))) if not np.all(np.isnan(column(3, 3))) else 0
        return Curve(
            collective,
            ranks,
            len(set(self.hosts.values())),
            np.array([r[0] for r in rows], dtype=np.float64),
            column(3, 0) * 1e-6,
            column(4, 0) * 1e-6,
            name,
            self.accelerator,
            "",
            self.version,
            wrong,
        )


def _ratio(rows):
    """busbw / algbw, from the row printed with the most digits; 0 where no row says."""
    best = max(rows, key=lambda r: r[3][1] if r[3][1] == r[3][1] else 0.0)
    return best[3][2] / best[3][1] if best[3][1] >= 0.5 else 0.0


def _guess(rows, ratio):
    redop = rows[-1][1]
    if redop in ("sum", "prod", "min", "max", "avg", "mulsum"):
        return (
            "all_reduce"
            if ratio == 0 or ratio > 1.005 or ratio == 1 and rows[-1][2] == -1
            else ("reduce" if rows[-1][2] not in (None, -1) else "reduce_scatter")
        )
    if rows[-1][2] not in (None, -1):
        return "broadcast"
    return "all_gather" if ratio < 0.999 else "sendrecv"


def _ranks(collective, ratio):
    """Ranks whose bus factor is ``ratio``; 0 where it cannot be told."""
    per = (
        {"all_reduce": ratio / 2}.get(collective, ratio)
        if bus_factor(collective, 2) != 1 or collective == "all_reduce"
        else 0
    )
    return round(1 / (1 - per)) if 0.4 < per < 0.99995 else 0


def _word(text):
    """The collective that a name carries, or an empty word."""
    text = text.lower().replace("-", "_")
    for word in sorted((*COLLECTIVES, *ALIASES), key=len, reverse=True):
        if word in text:
            return ALIASES.get(word, word)
    return ""
