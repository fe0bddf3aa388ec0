"""Read what NCCL_DEBUG=INFO prints: version, transport, GPUDirect, NICs, channels, rings, trees, algorithm, environment.

Each line is learned from or counted as ignored; ``seen + sum(ignored.values()) == lines``.  Nothing is required to be there:
fields that a log does not say stay empty.  ``differences`` holds it against what a healthy run on the fabric shows, each with the
variable that governs it.
"""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from .errors import SweepError

ALGORITHMS = {
    "0": "tree",
    "1": "ring",
    "2": "collnet direct",
    "3": "collnet chain",
    "4": "nvls",
    "5": "nvls tree",
    "6": "pat",
    "tree": "tree",
    "ring": "ring",
    "nvls": "nvls",
    "nvlstree": "nvls tree",
    "collnetdirect": "collnet direct",
    "collnetchain": "collnet chain",
    "pat": "pat",
}
PROTOCOLS = {"0": "LL", "1": "LL128", "2": "Simple", "ll": "LL", "ll128": "LL128", "simple": "Simple"}


class Debug(NamedTuple):
    """What the log said.  ``transports``: how often each was chosen between GPUs; ``choices``: (collective, bytes, algorithm, protocol)."""

    version: str = ""
    network: str = ""  # IB, Socket, or the name of a plugin
    nics: tuple = ()
    gpudirect: object = None  # True, False, or None where it is not said
    channels: int = 0
    rings: int = 0
    trees: int = 0
    ranks: int = 0
    nodes: int = 0
    transports: dict = {}
    environment: dict = {}
    choices: tuple = ()
    warnings: tuple = ()
    nvls: object = None
    lines: int = 0
    seen: int = 0
    ignored: dict = {}


class Difference(NamedTuple):
    """One thing that is not as it should be: what was found, what was expected, and the variable that governs it."""

    what: str
    found: str
    expected: str
    variable: str


def read_debug(path):
    """The ``Debug`` of a file."""
    try:
        return parse_debug(Path(path).read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise SweepError(
            f"{path}: {error.strerror or error}. Give the path of a log written with NCCL_DEBUG=INFO."
        ) from None


def parse_debug(text):
    """The ``Debug`` of a text."""
    said = {
        "transports": Counter(),
        "environment": {},
        "choices": [],
        "warnings": [],
        "nics": [],
        "channels": set(),
        "rings": set(),
        "trees": set(),
    }
    ignored, seen = Counter(), 0
    lines = text.splitlines()
    for line in lines:
        if not re.search(r"NCCL (INFO|WARN|TRACE)|NCCL version", line):
            ignored["no NCCL line"] += 1
            continue
        if any(rule(match, said) or True for pattern, rule in _RULES if (match := pattern.search(line))):
            seen += 1
        else:
            ignored["NCCL line without a fact read here"] += 1
    gdr = said.get("gdr")
    channels = said.get("channel_count") or len(said["channels"])
    return Debug(
        said.get("version", ""),
        said.get("network", ""),
        tuple(dict.fromkeys(said["nics"])),
        gdr,
        channels,
        len(said["rings"]),
        len(said["trees"]),
        said.get("ranks", 0),
        said.get("nodes", 0),
        dict(said["transports"]),
        said["environment"],
        tuple(said["choices"]),
        tuple(said["warnings"]),
        said.get("nvls"),
        len(lines),
        seen,
        dict(ignored),
    )


def differences(debug, accelerator=None, per_node=8, inter_node=True):
    """What differs from a healthy run, most telling first: a list of ``Difference``."""
    found = []
    if inter_node and debug.network.lower() == "socket":
        found.append(
            Difference(
                "transport between nodes",
                "TCP sockets",
                "InfiniBand or RoCE (NET/IB), or the vendor's plugin",
                "NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA",
            )
        )
    elif inter_node and debug.network and debug.gpudirect is False:
        found.append(
            Difference(
                "GPUDirect RDMA",
                "off: every byte passes host memory",
                "GDRDMA on every NET channel",
                "NCCL_NET_GDR_LEVEL, nvidia-peermem",
            )
        )
    ports = [nic for nic in debug.nics]
    if inter_node and ports and len(ports) < per_node:
        found.append(
            Difference(
                "NICs used",
                f"{len(ports)} ({', '.join(ports)})",
                f"{per_node}, one for each GPU",
                "NCCL_IB_HCA, NCCL_CROSS_NIC",
            )
        )
    if debug.transports.get("SHM") and not debug.transports.get("P2P"):
        found.append(
            Difference(
                "transport inside the node", "shared host memory", "P2P over NVLink", "NCCL_P2P_DISABLE, NCCL_P2P_LEVEL"
            )
        )
    if debug.channels and debug.channels < 8 and inter_node:
        found.append(
            Difference(
                "channels",
                str(debug.channels),
                "16 or more for the full rate of eight NICs",
                "NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS",
            )
        )
    if debug.nvls is False and accelerator and accelerator.startswith(("h1", "h2", "b", "gb")):
        found.append(Difference("NVLS", "not available", "in-switch reduction inside the domain", "NCCL_NVLS_ENABLE"))
    for name, value in sorted(debug.environment.items()):
        if name in _PINNED:
            found.append(Difference(f"{name} is pinned", value, _PINNED[name], name))
    return found


_PINNED = {
    "NCCL_ALGO": "NCCL's own choice by size",
    "NCCL_PROTO": "NCCL's own choice by size (LL is 16 times slower per byte)",
    "NCCL_P2P_DISABLE": "0",
    "NCCL_IB_DISABLE": "0",
    "NCCL_SHM_DISABLE": "0",
    "NCCL_NET_GDR_LEVEL": "unset: NCCL decides by topology",
    "NCCL_MAX_NCHANNELS": "unset",
    "NCCL_BUFFSIZE": "4 MiB",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_CROSS_NIC": "0 on rail-optimised fabrics",
    "NCCL_NTHREADS": "unset",
}


def _version(match, said):
    said["version"] = match.group(1)


def _network(match, said):
    said["network"] = match.group(1)


def _nic(match, said):
    said["nics"] += re.findall(r"\[\d+\]([\w.-]+):\d+", match.group(1)) or re.findall(r"([\w-]+):\d+/", match.group(1))
    said["network"] = said.get("network") or "IB"


def _via(match, said):
    way = match.group(1)
    kind = way.split("/")[0].upper()
    said["transports"][kind] += 1
    if kind == "NET":
        said["network"] = way.split("/")[1] if "/" in way else said.get("network", "")
        gdr = "GDRDMA" in match.group(0)
        said["gdr"] = gdr if said.get("gdr") is None else said["gdr"] and gdr


def _channel(match, said):
    said["channels"].add(match.group(1))
    if match.group(2):
        said["channel_count"] = max(said.get("channel_count", 0), int(match.group(2)))


def _counts(match, said):
    said["channel_count"] = max(said.get("channel_count", 0), int(match.group(1)))


def _ring(match, said):
    said["rings"].add(match.group(1))


def _trees(match, said):
    said["trees"].update(re.findall(r"\[(\d+)\]", match.group(1)))


def _ranks(match, said):
    said["ranks"] = max(said.get("ranks", 0), int(match.group(1)))


def _nodes(match, said):
    said["nodes"] = max(said.get("nodes", 0), int(match.group(1)))


def _environment(match, said):
    said["environment"][match.group(1)] = match.group(2).strip().rstrip(".")


def _choice(match, said):
    name, size, algorithm, protocol = match.groups()
    said["choices"].append(
        (
            name.lower(),
            int(size),
            ALGORITHMS.get(algorithm.lower(), algorithm),
            PROTOCOLS.get(protocol.lower(), protocol),
        )
    )


def _warning(match, said):
    said["warnings"].append(match.group(1).strip()[:160])


def _nvls(match, said):
    said["nvls"] = "not" not in match.group(0).lower() and not match.group(0).rstrip().endswith("0")


_RULES = [
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"NCCL version (\d+\.\d+(?:\.\d+)?)", _version),
        (r"Using network (\w+)", _network),
        (r"NET/IB : Using (.*)", _nic),
        (r"\bvia (P2P[/\w]*|SHM[/\w]*|NET/[\w-]+[^\s]*)(?:.*GDRDMA)?", _via),
        (r"Channel (\d+)(?:/(\d+))?\s*:", _channel),
        (r"(\d+) coll channels", _counts),
        (r"Ring (\d+) :", _ring),
        (r"Trees ((?:\[\d+\][^\[]*)+)", _trees),
        (r"\bnranks (\d+)", _ranks),
        (r"\bn[Nn]odes (\d+)", _nodes),
        (r"\b(NCCL_[A-Z0-9_]+) set (?:by environment )?to (.*)", _environment),
        (r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)", _choice),
        (r"NCCL WARN (.*)", _warning),
        (r"NVLS multicast support is (?:not )?available|NVLS (?:enabled|disabled|not)", _nvls),
    )
]
