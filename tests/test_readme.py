"""Every example of the README is run, and prints what the README says.

Blocks marked ``console`` hold ``$ command`` lines, each followed by its output; ``| head -N`` and ``| tail -N`` are understood
everywhere.  Blocks marked ``python`` are doctests.  They run in a folder of their own, in which the stores that the text
speaks of exist (why-400g and cost-optimal cut down to the labels that their answers take, layouts and sharding to the
outputs that are asked for).

After a change of numbers:  python tests/test_readme.py   writes the outputs anew.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CUT = {"seq_len": "[1024, 8192]", "micro_batch": "[1]", "tp": "[8]", "dp": "[4096]", "grad_bytes": "[2]", "recompute": "[none]",
       "link_gbps": "[200, 400, 800]"}  # fmt: skip
FEWER = {"layouts": ("step_time_s", "exposed_dp_s", "exposed_fraction", "required_link_gbps", "binding_dimension", "binding_margin",
         "tokens_per_s_per_gpu", "memory_bytes"),
         "sharding": ("step_time_s", "exposed_dp_s", "tokens_per_s_per_gpu", "memory_bytes")}  # what the questions name, for the sake of time; fmt: skip
CHEAP = {"model": "[llama-3-70b]", "gpus": "[1024]", "tp": "[8]", "micro_batch": "[1]", "zero_stage": "[0]",
         "network_price": "{labels: [once], switch_usd_per_gbps: [1.4], optics_usd_per_gbps: [3.0], cable_usd: [80], nic_usd_per_gbps: [4]}"}  # fmt: skip


def prepare(folder):
    """The stores of the README, in ``folder``/outputs."""
    from sweep import Spec, run

    (folder / "outputs").mkdir(exist_ok=True)
    for store, cut in (("why-400g", CUT), ("cost-optimal", CHEAP)):
        spec = Spec.load(store)
        for name, labels in cut.items():
            spec = spec.with_set(f"{name}={labels}")
        run(spec, folder / "outputs" / f"{store}.zarr")
    for name in ("iso-line", "layouts", "sharding"):
        spec = Spec.load(name)
        run(spec.with_set(f"outputs=[{', '.join(FEWER[name])}]") if name in FEWER else spec, folder / "outputs" / f"{name}.zarr")


def command(line):
    """What a command line prints on stdout; commands of make are not run (their targets must exist)."""
    from sweep.cli import main

    parts = [part.strip() for part in line.split(" | ")]
    words = shlex.split(parts[0])
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        return ""
    if words[0] in ("python3", "pip", "git", "cd"):
        return ""
    assert words[0] == "sweep", line
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main(words[1:])
        except SystemExit as end:
            assert not end.code, f"{line}: {errors.getvalue()}"
    shown = said.getvalue().splitlines()
    for part in parts[1:]:
        which, count = re.fullmatch(r"(head|tail) -(\d+)", part).groups()
        shown = shown[: int(count)] if which == "head" else shown[-int(count) :]
    return "\n".join(line.rstrip() for line in shown)


def examples(text):
    """(command, output) pairs of a console block."""
    for chunk in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = chunk.partition("\n")
        yield line, output.rstrip("\n")


def rewritten(text, run_command):
    """The README with the outputs that its commands have now."""

    def anew(match):
        if match[1] != "console":
            return match[0]
        lines = []
        for line, _ in examples(match[2]):
            output = run_command(line)
            lines += [f"$ {line}", *([output] if output else [])]
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(anew, text)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    before = Path.cwd()
    os.chdir(folder)
    prepare(folder)
    yield folder
    os.chdir(before)


BLOCKS = [match.groups() for match in BLOCK.finditer(README.read_text(encoding="utf-8"))]
COMMANDS = [pair for kind, text in BLOCKS if kind == "console" for pair in examples(text)]


@pytest.mark.parametrize("line, output", COMMANDS, ids=[line[:60] for line, _ in COMMANDS])
def test_commands(place, line, output):
    assert command(line) == output, "python tests/test_readme.py writes the outputs anew"


def test_python(place):
    source = "\n".join(text for kind, text in BLOCKS if kind == "python")
    test = doctest.DocTestParser().get_doctest(source, {}, "README", str(README), 0)
    report = io.StringIO()
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=report.write)
    assert not failed and tried > 5, report.getvalue()


def test_links_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target
    heads = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert anchor in heads, anchor


def test_every_figure_is_shown_and_drawn_by_make():
    text, folder = README.read_text(encoding="utf-8"), ROOT / "outputs" / "gallery"
    orders = (ROOT / "Makefile").read_text() + (folder / "Makefile").read_text()
    for path in folder.rglob("*.png"):
        name = str(path.relative_to(ROOT))
        assert name in text, f"{name} is not on the page"
        assert path.stem in orders or str(path.parent.relative_to(ROOT)) in orders, f"make gallery does not draw {name}"


def test_every_verb_is_shown():
    from sweep.cli import cli

    text = README.read_text(encoding="utf-8")
    assert not [verb for verb in cli.commands if f"sweep {verb}" not in text]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        prepare(Path(name))
        README.write_text(rewritten(README.read_text(encoding="utf-8"), command), encoding="utf-8")
        os.chdir(ROOT)
