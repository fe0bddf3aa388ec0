"""The command line: examples in every help, one-line errors, exit codes, and what goes to which stream."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sweep import cli, execute, tables
from sweep.progress import Bar, clock, count, line

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def sweep(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A working folder with one small config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text(
        "title: small\naxes: {tp: [1, 8], link_gbps: [200, 400]}\nfixed: {model: llama-3-8b, accelerator: h100, dp: 16}\n"
        "outputs: [step_time_s, required_link_gbps]\nallow: [memory]\n"
    )
    return tmp_path


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", sorted(cli.cli.commands))
def test_every_command_has_help_with_an_example(verb, sweep):
    code, out, err = sweep(verb, "--help")
    assert code == 0 and err == ""
    assert re.search(rf"Example:\n( +.*\n)* +sweep {verb}\b", out), f"sweep {verb} --help shows no example"
    assert "--quiet" in out and "--debug" in out
    for parameter in cli.cli.commands[verb].params:
        assert isinstance(parameter, click.Argument) or parameter.help, f"sweep {verb} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("verb", sorted(cli.cli.commands))
def test_examples_are_written_as_they_are_parsed(verb):
    command = cli.cli.commands[verb]
    for example in re.findall(rf"^ +(sweep {verb}\b.*)$", command.help, re.M):
        arguments = shlex.split(example.split(" | ")[0])[2:]
        command.make_context(verb, arguments, parent=click.Context(cli.cli, obj={})).close()


def test_help_and_version(sweep):
    code, out, _ = sweep("--help")
    assert code == 0 and all(verb in out for verb in cli.cli.commands) and "Completion" in out
    assert "..." not in out.split("Commands:")[1]  # each verb's sentence is whole
    assert re.fullmatch(r"sweep \d+\.\d+\.\d+\n", sweep("--version")[1])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    environment = {**os.environ, "_SWEEP_COMPLETE": f"{shell}_source", "PYTHONPATH": str(ROOT)}
    code = "import sys; sys.argv = ['sweep']; from sweep.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and "_SWEEP_COMPLETE" in ran.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["presets", "models"], ["presets", "inputs"], ["run", "--help"]])
def test_light_commands_import_nothing_heavy(arguments):
    code = (
        "import sys\nfrom sweep.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n"
        "    print(*[name for name in 'jax zarr xarray dask matplotlib'.split() if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout and ran.stderr.split() == []


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, hint",
    [
        (["infoo"], "Did you mean info?"),
        (["plan"], "Missing argument 'CONFIG'. Type: sweep plan --help."),
        (["plan", "smal"], "Did you mean 'small'?"),
        (["plan", "small", "--fromat", "csv"], "Did you mean '--format'? Type: sweep plan --help."),
        (["plan", "small", "--set", "link_gbps=fast"], "fixed.link_gbps: 'fast' is not a number"),
        (["plan", "small", "--set", "tpp=8"], "Did you mean"),
        (["plan", "small", "--set", "tp"], "there is no '='"),
        (["run", "small", "--part", "5/4"], "Write I/N"),
        (["presets", "modls"], "Did you mean 'models'?"),
        (["presets", "models", "llama-3-7b"], "Did you mean"),
        (["presets", "inputs", "link"], "Did you mean"),
        (["info", "nowhere"], "nowhere"),
    ],
)
def test_input_that_can_be_mended_is_one_line_and_exit_2(arguments, hint, sweep, workplace):
    code, out, err = sweep(*arguments)
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("error: "), err
    assert hint in err


def test_our_faults_are_exit_1(sweep, workplace, monkeypatch):
    monkeypatch.setattr(execute, "run", lambda *a, **k: 1 / 0)
    code, out, err = sweep("run", "small")
    assert code == 1 and out == "" and "our fault: ZeroDivisionError" in err and "--debug" in err and err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        cli.main(["run", "small", "--debug"])


def test_interruption_is_exit_130_and_says_how_to_go_on(sweep, workplace, monkeypatch):
    def interrupted(*a, **k):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run", interrupted)
    code, _, err = sweep("run", "small")
    assert code == 130 and "The same command goes on" in err


def test_a_closed_pipe_is_no_error():
    code = "from sweep.cli import main; main(['presets', 'models', '--format', 'csv'])"
    ran = subprocess.run(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} | head -n 1", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.startswith("name,") and ran.stderr == ""


# -- verbs -------------------------------------------------------------------------------------------------------------


def test_plan_run_info(sweep, workplace):
    code, out, err = sweep("plan", "small")
    assert code == 0 and "points   4 " in out and err == ""
    told = json.loads(sweep("plan", "small", "--format", "json", "--set", "tp=8")[1])
    assert told["points"] == 2
    code, out, err = sweep("run", "small")
    assert code == 0 and out == "outputs/small.zarr\n" and "4 points in" in err
    code, out, err = sweep("run", "small", "--quiet")
    assert code == 0 and err == ""
    assert "nothing was left to do" in sweep("run", "small")[2]
    code, out, err = sweep("info", "small")
    assert code == 0 and "4 points, complete" in out and "required_link_gbps" in out and "accelerator h100" in out
    told = json.loads(sweep("info", "outputs/small.zarr", "--format", "json")[1])
    assert told["progress"]["blocks_missing"] == 0
    assert told["complete"] and told["defaults"]["tolerance"] == 0.02


def test_info_says_where_presets_have_their_numbers_from():
    from sweep import evaluate, presets, summaries

    ds = evaluate(["required_link_gbps"], model="llama-3-8b", accelerator=["a100", "h100"], dp=64)
    said = {row["preset"]: row["source"] for row in summaries.summary(ds)["sources"]}
    assert said == {f"{table} {name}": presets.find(table, name).source for table, name in (("model", "llama-3-8b"), ("accelerator", "a100"), ("accelerator", "h100"))}
    assert presets.find("accelerator", "h100").source in summaries.text(summaries.summary(ds))


def test_check_finds_a_flipped_byte_and_repair_lets_run_go_on(sweep, workplace):
    sweep("run", "small", "--quiet")
    assert sweep("check", "small")[:2] == (0, "whole: every block is as its journal says\n")
    chunk = next(path for path in (workplace / "outputs/small.zarr/step_time_s").rglob("*") if path.is_file() and path.name != "zarr.json")
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    code, out, err = sweep("check", "small")
    assert code == 2 and "step_time_s" in out and "sweep check small --repair" in err
    assert sweep("check", "small", "--repair")[0] == 0
    sweep("run", "small", "--quiet")
    assert sweep("check", "small", "--format", "json")[:2] == (0, "[]\n")


def test_presets_lists_what_can_be_named(sweep):
    assert {"models", "accelerators", "inputs", "configs"} <= set(sweep("presets")[1].split())
    rows = list(csv.DictReader(io.StringIO(sweep("presets", "accelerators", "--format", "csv")[1])))
    assert {"h100", "gb300", "tpu-v5p"} <= {row["name"] for row in rows}
    told = json.loads(sweep("presets", "models", "llama-3-70b", "--format", "json")[1])
    assert {"quantity": "layers", "value": 80}.items() <= next(row for row in told if row["quantity"] == "layers").items()
    assert all(row["source"] for row in told if row["quantity"] != "note")
    assert "8192" in sweep("presets", "inputs", "seq_len")[1]
    assert sweep("presets", "accelerator")[1] == sweep("presets", "accelerators")[1]


# -- tables and progress -----------------------------------------------------------------------------------------------


def test_json_is_strict():
    rows = [{"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": 1.5, "e": "word"}]
    assert json.loads(tables.render(rows, "json"), parse_constant=pytest.fail) == [{"a": None, "b": "inf", "c": "-inf", "d": 1.5, "e": "word"}]
    assert tables.render(rows, "csv") == "a,b,c,d,e\n,inf,-inf,1.5,word"
    assert tables.render(rows).split() == ["a", "b", "c", "d", "e", "-", "inf", "-inf", "1.5", "word"]
    assert tables.render([], "json") == "[]" and tables.render([]) == ""


def test_progress_lines():
    half = execute.Progress(1, 2, 2_800_000, 5_600_000, 3.4e6, 0.82)
    assert line(half) == "[==========>         ]  50%  2.8 M of 5.6 M points, 3.4 M points/s, 1 s left"
    assert [clock(s) for s in (12, 245, 7800)] == ["12 s", "4 min 05 s", "2 h 10 min"]
    assert [count(n) for n in (144, 52345, 1e6, 3e10)] == ["144", "52 k", "1.0 M", "30 G"]


def test_progress_away_from_a_terminal_is_a_line_every_30_s():
    now = [0.0]
    stream = io.StringIO()
    bar = Bar(stream, lambda: now[0])
    for second in range(1, 100):
        now[0] = float(second)
        bar(execute.Progress(second, 100, second, 100, 1.0, 100.0 - second))
    bar(execute.Progress(100, 100, 100, 100, 1.0, 0.0))
    bar.close()
    assert stream.getvalue().count("\n") == 4 and "\r" not in stream.getvalue()
