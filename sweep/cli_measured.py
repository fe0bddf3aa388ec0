"""The verbs of the measured world: validate (the model against published runs), calibrate (from your logs), diagnose (a slow fabric)."""

import json
from pathlib import Path

import click

from .console import cli, say
from .errors import SweepError


@cli.command()
@click.argument("runs", required=False, metavar="[CSV]")
@click.option(
    "--format",
    "format",
    type=click.Choice(["markdown", "csv", "json"]),
    default="markdown",
    show_default=True,
    help="Of what goes to stdout: figures, or one line a run.",
)
@click.option("--parity", metavar="FILE", help="Predicted against measured, as a .png, .svg or .pdf.")
def validate(runs, format, parity):
    """Hold the model against measured training runs: errors, targets, order, growth, intervals, yardsticks.

    Without CSV: the published runs of configs/data. A CSV of your own needs the columns of configs/data/training_runs.csv.

    \b
    Example:
      sweep validate
      sweep validate --format csv | head -5
      sweep validate --parity parity.png
    """
    from . import reports, validation
    from .tables import render_json

    report = validation.validate(runs)
    if parity:
        from .parity import draw

        say(f"drawn: {draw(report.rows, parity)}")
    if format == "json":
        click.echo(render_json(report.figures))
    else:
        click.echo(reports.to_csv(report) if format == "csv" else reports.to_markdown(report), nl=False)


@cli.command()
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@click.option("--name", default="own", show_default=True, help="Name of the preset to write.")
@click.option(
    "--accelerator", metavar="NAME", help="Accelerator the logs were measured on: rates become shares of its links."
)
@click.option("--link-gbps", type=float, help="Port per accelerator where it is not the one that it ships with.")
@click.option("--collective", help="Collective of logs that do not say.")
@click.option("--ranks", type=int, help="Ranks of logs that do not say.")
@click.option(
    "--runs", metavar="CSV", help="Refit a stack preset to your own training runs (columns of training_runs.csv)."
)
@click.option("--fabrics", is_flag=True, help="Refit the fabrics of the published runs.")
@click.option(
    "--stacks",
    is_flag=True,
    help="Refit every stack to the published runs (split = fit), leave one source out, and keep the figures.",
)
def calibrate(logs, name, accelerator, link_gbps, collective, ranks, runs, fabrics, stacks):
    """Fit a fabric to logs of nccl-tests or rccl-tests, or a stack to training runs, and write presets to configs/ of this folder.

    \b
    Example:
      sweep calibrate all_gather.log all_reduce.log --name ours --accelerator h100
      sweep calibrate --runs our_runs.csv --name our-stack
      sweep calibrate --fabrics
      sweep calibrate --stacks
    """
    from . import calibrating

    if not (logs or runs or fabrics or stacks):
        raise SweepError("calibrate: nothing to read. Give logs of nccl-tests, --runs CSV, --fabrics or --stacks.")
    if logs:
        click.echo(calibrating.from_logs(logs, name, accelerator, link_gbps, collective, ranks, say))
    if runs:
        click.echo(calibrating.from_runs(runs, name, say))
    if fabrics:
        click.echo(calibrating.published_fabrics(say))
    if stacks:
        click.echo(calibrating.published_stacks(say))


@cli.command()
@click.argument("log", metavar="LOG")
@click.argument("design", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--fabric", required=True, metavar="NAME", help="Fabric preset that says what to expect.")
@click.option("--accelerator", required=True, metavar="NAME", help="Accelerator preset.")
@click.option("--collective", help="Collective, where the log does not say.")
@click.option("--ranks", type=click.IntRange(1), help="Ranks, where the log does not say.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes, where the log does not say.")
@click.option("--nccl", metavar="VERSION", help="Version of NCCL, where the log does not say: which algorithms it has.")
@click.option(
    "--format",
    "format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Of what goes to stdout.",
)
def diagnose(log, design, fabric, accelerator, collective, ranks, nodes, nccl, format):
    """Expected beside measured for a log of nccl-tests or NCCL_DEBUG=INFO: who is to blame, what it costs, what to measure next.

    NAME=VALUE changes the training step that the shortfall is priced on.

    \b
    Example:
      sweep diagnose all_reduce.log --fabric eos --accelerator h100
      sweep diagnose all_reduce.log --fabric eos --accelerator h100 model=llama-3-405b gpus=4096
    """
    from . import diagnosis
    from .cli_answers import _assignments

    found = diagnosis.diagnose(
        Path(log), fabric, accelerator, collective, ranks, nodes, _assignments("diagnose", design), nccl
    )
    click.echo(diagnosis.to_text(found) if format == "text" else json.dumps(diagnosis.to_plain(found), indent=1))
