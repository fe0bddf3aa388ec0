"""The verbs about running a sweep and what it holds or can name: plan, run, info, check, presets."""

import sys

import click

from .console import cli, complain, load_spec, quiet, say, set_option, table_format
from .errors import SpecError, StoreError


@cli.command()
@click.argument("config")
@set_option
@table_format()
def plan(config, settings, format):
    """Points, blocks, bytes, files and memory of a sweep, before it is run.

    \b
    Example:
      sweep plan why-400g
      sweep plan configs/quickstart.yaml --set 'link_gbps=[200, 400]'
    """
    from . import tables
    from .plan import Plan

    made = Plan.of(load_spec(config, settings))
    if format == "table":
        click.echo(str(made))
    else:
        described = made.describe()
        flat = [{"what": key, "value": value} for key, value in described.items()]
        click.echo(tables.render_json(described) if format == "json" else tables.render(flat, format))


@cli.command()
@click.argument("config")
@click.option("-o", "--output", "path", metavar="STORE", help="Where the store goes.  [default: outputs/NAME.zarr]")
@set_option
@click.option("--part", metavar="I/N", help="Only every N-th block, for jobs without a scheduler between them.")
@click.option("--workers", type=click.IntRange(1), help="Processes to start here, one for each GPU or share of the cores.")
@click.option("--dask", metavar="ADDRESS", help="A dask scheduler (or its file) whose workers do the blocks.")
@click.option("--extend", is_flag=True, help="Let a store of fewer labels or outputs grow.")
@click.option("--overwrite", is_flag=True, help="A new store; the old one stays until it is complete.")
@table_format()
def run(config, path, settings, part, workers, dask, extend, overwrite, format):
    """Evaluate a sweep into a store, or finish one that was stopped.

    \b
    Example:
      sweep run quickstart
      sweep run why-400g -o outputs/mine.zarr --set 'accelerator=[h100, b200]'
      sweep run why-400g --part 1/4
      sweep run why-400g --dask tcp://10.0.0.1:8786
    """
    from . import execute, tables
    from .progress import Bar, clock, count

    spec = load_spec(config, settings)
    if workers and dask:
        raise SpecError("--workers and --dask are both given. Keep one: processes here, or a cluster that runs already.")
    bar = Bar() if not quiet() else None
    how = {"extend": extend, "overwrite": overwrite, "workers": workers, "dask": dask}
    try:
        result = execute.run(spec, path, part=_part(part), progress=bar, **how)
    except KeyboardInterrupt:
        complain("interrupted; every finished block is kept. The same command goes on from there.")
        sys.exit(130)
    finally:
        if bar:
            bar.close()
    for note in result.notes:
        say(note)
    if result.points:
        rate = count(result.points / max(result.seconds, 1e-9))
        say(f"{result.points:,} points in {clock(result.seconds)}, {rate} points/s on {result.device}")
    else:
        say("nothing was left to do")
    if not result.complete:
        say("blocks of other parts are still missing")
    click.echo(result.path if format == "table" else tables.render([_fields(result)], format))


def _part(text):
    """'2/8' as (2, 8)."""
    if text is None:
        return None
    first, slash, last = text.partition("/")
    if not slash or not first.isdigit() or not last.isdigit() or not 1 <= int(first) <= int(last):
        raise SpecError(f"--part {text}: is not a part. Write I/N with I from 1 to N, such as 1/4.")
    return int(first), int(last)


def _fields(result):
    return {key: list(value) if isinstance(value, tuple) else value for key, value in result._asdict().items()}


@cli.command()
@click.argument("store")
@click.option("--contour", required=True, metavar="A=B", help="Where two quantities meet, such as 'required_link_gbps = link_gbps'.")
@click.option("--along", metavar="AXIS", help="The axis along which they cross.  [default: the side of the contour that is an axis]")
@click.option("--allow", multiple=True, metavar="REASON", help="A reason of status that does not disqualify. Repeatable.")
@click.option("-o", "--output", "path", required=True, metavar="STORE", help="Where the points go.")
def refine(store, contour, along, allow, path):
    """The points of a saved sweep at which two quantities meet, to the last digit, as a store of their own.

    \b
    Example:
      sweep refine quickstart --contour "required_link_gbps = link_gbps" -o outputs/contour.zarr
      sweep refine quickstart --contour "exposed_fraction = 0.02" --along link_gbps -o outputs/two-percent.zarr
    """
    from . import refinements

    result = refinements.refine(store, contour, path, along=along, allow=allow)
    say(f"{result.points:,} points on {contour}")
    click.echo(result.path)


@cli.command()
@click.argument("store")
@table_format()
def info(store, format):
    """Every axis, constant and variable of a store, with units and where they come from.

    \b
    Example:
      sweep info outputs/quickstart.zarr
      sweep info quickstart --format json
    """
    from . import inspections, summaries, tables
    from .store import open_store

    told = summaries.summary(open_store(store))
    if "://" not in str(told["store"]):
        told["progress"] = inspections.info(told["store"])
    if format == "table":
        click.echo(summaries.text(told))
    elif format == "json":
        click.echo(tables.render_json(told))
    else:
        click.echo(tables.render(told["outputs"], format))


@cli.command()
@click.argument("store")
@click.option("--repair", is_flag=True, help="Take bad blocks back, so that the next run computes them again.")
@table_format()
def check(store, repair, format):
    """Read every chunk of a store and compare it with its journal; what is wrong, in which block.

    \b
    Example:
      sweep check outputs/quickstart.zarr
      sweep check why-400g --repair
    """
    from . import inspections, tables

    faults = inspections.check(store, repair)
    rows = [{"block": "-" if f.block is None else " ".join(map(str, f.block)), "output": f.output, "problem": f.problem} for f in faults]
    click.echo(tables.render(rows, format, ("block", "output", "problem")) if rows or format != "table" else "whole: every block is as its journal says")
    missing = inspections.missing(store)
    if missing and (repair or not rows):
        say(f"{missing:,} block{'s' * (missing > 1)} still to be computed: type the run's command again.")
    if rows and not repair:
        raise StoreError(f"{store}: {len(rows)} fault{'s' * (len(rows) > 1)}. Type: sweep check {store} --repair, then the run's command again.")


@cli.command()
@click.argument("table", required=False)
@click.argument("names", nargs=-1)
@table_format()
def presets(table, names, format):
    """What can be named: models, accelerators, fabrics, stacks, inputs, outputs, configs.

    \b
    Example:
      sweep presets
      sweep presets accelerators
      sweep presets models llama-3-70b
      sweep presets inputs link_gbps
    """
    from . import listings, tables

    click.echo(tables.render(listings.rows(table, names, everything=format != "table"), format))
