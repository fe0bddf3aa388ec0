"""The verbs that answer in words: explain (one point, worked), solve (the input that is enough), why (a stored sweep)."""

import click

from .console import allow_option, cli, say, table_format
from .errors import SpecError


@cli.command()
@click.argument("inputs", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option(
    "--format",
    "format",
    type=click.Choice(["text", "markdown", "latex", "json"]),
    default="text",
    show_default=True,
    help="Of what goes to stdout.",
)
@click.option(
    "--about",
    type=click.Choice(["step", "money", "fabric", "serving", "capacity", "stragglers", "tensor"]),
    default="step",
    show_default=True,
    help="What to work.",
)
@click.option("--section", "sections", multiple=True, metavar="WORD", help="Only sections titled with WORD. Repeatable.")
@click.option("--interval", type=int, metavar="PERCENT", help="Ends about the step time that so many measured runs lie between.")
@click.option("--draw", metavar="FILE", help="The step's timeline as a .png, .svg or .pdf.")
def explain(inputs, format, about, sections, interval, draw):
    """The numbers of one point worked step by step, up to the required port and what would change it.

    \b
    Example:
      sweep explain model=llama-3-70b accelerator=h100 tp=8 dp=128
      sweep explain model=mixtral-8x7b accelerator=h100 ep=8 pp=4 dp=64 micro_batches=16 --format markdown
      sweep explain model=llama-3-8b accelerator=h100 dp=64 zero_stage=3 --draw step.png
      sweep explain model=llama-3-8b accelerator=b200 dp=64 --section "first order to full" --section change
      sweep explain model=llama-3-70b accelerator=h100 tp=8 dp=16 --interval 80 --section sure
      sweep explain --about money model=llama-3-70b accelerator=h100 tp=8 gpus=1024
    """
    if about != "step":
        if interval is not None:
            raise SpecError("sweep explain: --interval stands about a step time. Leave out --about.")
        from . import moneysheets, tables

        sheet = moneysheets.about(about, **_assignments("explain", inputs)).only(sections)
        click.echo(tables.render_json(sheet.to_dict()) if format == "json" else getattr(sheet, format)())
        return
    from . import explanations

    said = explanations.explain(interval, **_assignments("explain", inputs))
    click.echo(said.render(format, sections))
    if draw:
        said.draw(draw)
        say(f"drawn: {draw}")


@cli.command()
@click.argument("name")
@click.argument("inputs", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--where", metavar="EXPR", help="What is to hold.  [default: required_link_gbps <= link_gbps]")
@click.option("--find", type=click.Choice(["smallest", "largest"]), help="Which end.  [default: what a port limits]")
@click.option("--upto", type=int, metavar="N", help="The largest whole number tried.")
@allow_option
@table_format()
def solve(name, inputs, where, find, upto, allow, format):
    """The question the other way round: the smallest micro-batch, or the largest dp, for which a port is enough.

    NAME is an input, or tokens_per_domain. Every whole number is tried; a list in NAME=VALUE makes one answer for each.

    \b
    Example:
      sweep solve micro_batch model=llama-3-70b accelerator=h100 tp=8 dp=128 link_gbps=200 --allow memory
      sweep solve dp model=llama-3-8b accelerator=h100 zero_stage=3 global_batch=1024 --where "exposed_dp_s <= tolerance * step_time_s"
      sweep solve tokens_per_domain model=llama-3-70b "accelerator=[a100, h100, b200]" tp=8 dp=128 link_gbps=400 --allow memory
    """
    from . import inversions, tables

    found = inversions.search(name, where or inversions.WHERE, find, upto, allow, **_assignments("solve", inputs))
    rows = found.rows()
    columns = [name for name in rows[0] if format != "table" or any(row[name] == row[name] for row in rows)]  # none that is empty
    click.echo(tables.render(rows, format, columns))
    if len(rows) == 1:
        say(found.sentence())


@cli.command()
@click.argument("store")
@table_format()
def why(store, format):
    """Why about 400 Gb/s: the answer of a stored sweep, generation by generation, read back from it.

    \b
    Example:
      sweep run why-400g
      sweep why why-400g
    """
    from . import answers

    click.echo(answers.answer(store).render(format))


def _assignments(verb, words):
    """name=value of a command line as a mapping, values in YAML."""
    from .presets import parse_yaml

    given = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SpecError(f"sweep {verb}: {word!r} has no '='. Write NAME=VALUE, such as accelerator=h100.")
        if name in given:
            raise SpecError(f"sweep {verb}: {name} is given twice. Keep one of the two.")
        given[name] = parse_yaml(text, name)
    return given
