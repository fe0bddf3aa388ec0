"""The command line: one thin function for each verb, which calls the module that does the work.

Tables go to stdout, everything else to stderr.  Exit 0: done; 2: something you can mend, in one sentence; 1: our fault;
130: interrupted.  Modules are imported inside the verbs, so that help and completion are instant.
"""

import difflib
import os
import sys

import click

from . import __version__, cli_money
from .errors import SpecError, SweepError


class Verb(click.Command):
    """A command that also takes --quiet and --debug, and whose help keeps its example lines."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--quiet"], is_flag=True, expose_value=False, callback=_keep, help="No progress, no remarks."),
            click.Option(["--debug"], is_flag=True, expose_value=False, callback=_keep, help="A traceback with an error."),
        ]


class Verbs(click.Group):
    """The group: verbs in the order of the work, and "did you mean" for an unknown one."""

    command_class = Verb

    def list_commands(self, ctx):
        return list(self.commands)

    def resolve_command(self, ctx, args):
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.commands, 2, 0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(self.commands)}."
            raise SpecError(f"sweep: {args[0]!r} is no command. {hint}")
        return super().resolve_command(ctx, args)


def _keep(ctx, param, value):
    ctx.ensure_object(dict)
    ctx.obj[param.name] = ctx.obj.get(param.name) or value


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--quiet", is_flag=True, expose_value=False, callback=_keep, help="No progress, no remarks.")
@click.option("--debug", is_flag=True, expose_value=False, callback=_keep, help="A traceback with an error.")
@click.version_option(__version__, prog_name="sweep", message="%(prog)s %(version)s")
def cli():
    """Exact sweeps of communication under compute: why about 400 Gb/s per GPU.

    \b
    Example:
      sweep run quickstart
      sweep query outputs/quickstart.zarr --best required_link_gbps
      sweep explain model=llama-3-70b accelerator=h100 tp=8 dp=128

    \b
    Completion: eval "$(_SWEEP_COMPLETE=bash_source sweep)"   (zsh_source, fish_source)
    """


def main(arguments=None):
    """The entry point: every error is one line and an exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments or bool(os.environ.get("SWEEP_DEBUG"))
    try:
        code = cli.main(arguments, prog_name="sweep", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (SweepError, click.ClickException) as error:
        if debug:
            raise
        _complain(_usage(error) if isinstance(error, click.ClickException) else str(error))
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        _complain(f"our fault: {type(error).__name__}: {error}. The same command with --debug shows where.")
        sys.exit(1)


def _usage(error):
    """click's message, and the help to type."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sweep"
    message = error.format_message()
    return f"{path}: {message}{'' if message.endswith(('.', '?')) else '.'} Type: {path} --help."


def say(text):
    """A remark on stderr, unless --quiet."""
    if not quiet():
        click.echo(text, err=True)


def quiet():
    """Whether --quiet stands anywhere on the line."""
    context = click.get_current_context(silent=True)
    return bool(context and context.obj and context.obj.get("quiet"))


def _complain(text):
    click.echo("error: " + " ".join(str(text).split()), err=True)


def table_format(*more):
    """The option --format, for verbs that print a table."""
    choices = click.Choice(["table", "csv", "json", *more])
    return click.option("--format", "format", type=choices, default="table", help="Of what goes to stdout.")


set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace an axis or constant; the value in YAML. Repeatable."
)


def load_spec(config, settings=()):
    """The Spec of a config with every --set applied."""
    from .spec import Spec

    spec = Spec.load(config)
    for assignment in settings:
        spec = spec.with_set(assignment)
    return spec


# -- verbs: run a sweep ------------------------------------------------------------------------------------------------


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
@click.option("--extend", is_flag=True, help="Let a store of fewer labels or outputs grow.")
@click.option("--overwrite", is_flag=True, help="A new store; the old one stays until it is complete.")
@table_format()
def run(config, path, settings, part, extend, overwrite, format):
    """Evaluate a sweep into a store, or finish one that was stopped.

    \b
    Example:
      sweep run quickstart
      sweep run why-400g -o outputs/mine.zarr --set 'accelerator=[h100, b200]'
      sweep run why-400g --part 1/4
    """
    from . import execute, tables
    from .progress import Bar, clock, count

    spec = load_spec(config, settings)
    bar = Bar() if not quiet() else None
    try:
        result = execute.run(spec, path, part=_part(part), extend=extend, overwrite=overwrite, progress=bar)
    except KeyboardInterrupt:
        _complain("interrupted; every finished block is kept. The same command goes on from there.")
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


# -- verbs: ask, see -----------------------------------------------------------------------------------------------------

at_option = click.option("--at", "at", multiple=True, metavar="NAME=LABEL", help="A slice: NAME=LABEL, =A,B or =LOW..HIGH. Repeatable.")
allow_option = click.option("--allow", multiple=True, metavar="REASON", help="A reason of status that does not disqualify. Repeatable.")


@cli.command()
@click.argument("store")
@click.option("--where", metavar="EXPR", help="Points to look at, such as 'tp * pp <= 16'.")
@at_option
@click.option("--best", metavar="NAME", help="The best points by NAME (or min:NAME, max:NAME).")
@click.option("--top", type=click.IntRange(1), default=1, show_default=True, help="How many of the best.")
@click.option("--over", metavar="AXES", help="Axes that --best searches; one answer for each combination of the others.")
@click.option("--pareto", metavar="NAMES", help="Points that none beats in all of NAMES.")
@click.option("--crossover", metavar="NAME=VALUE", help="Where NAME crosses VALUE, with --along.")
@click.option("--along", metavar="AXIS", help="The axis of --crossover.")
@click.option("--sensitivity", metavar="NAME", help="How much each axis moves NAME.")
@click.option("--group-by", metavar="NAMES", help="Groups to count, or to search with --best and --pareto.")
@click.option("--count", is_flag=True, help="How many points match.")
@click.option("--columns", metavar="NAMES", help="Names to show.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="Rows at most; 0: all.")
@allow_option
@table_format("parquet")
def query(store, at, allow, limit, format, **asked):
    """Ask a saved sweep: points, counts, winners, fronts, crossings, sensitivities.

    \b
    Example:
      sweep query quickstart --best required_link_gbps --over link_gbps
      sweep query quickstart --where "exposed_fraction > 0.1" --count
      sweep query quickstart --crossover exposed_fraction=0.02 --along link_gbps
      sweep query quickstart --group-by bottleneck --format csv
    """
    from . import exports, queries, selections
    from .store import open_store

    frame = queries.query(open_store(store), at=selections.parse_at(at), allow=allow, limit=limit or None, **asked)
    for note in frame.attrs["notes"]:
        say(note)
    exports.write_frame(frame, format, sys.stdout)


@cli.command("map")
@click.argument("store")
@click.option("--x", required=True, metavar="NAME", help="An axis, or a quantity that varies along one axis only.")
@click.option("--y", required=True, metavar="NAME", help="The same for the other direction.")
@click.option("--color", required=True, metavar="NAME", help="The quantity drawn as contours.")
@at_option
@click.option("--facet", metavar="AXIS", help="An axis drawn as panels side by side.")
@click.option("--width", type=click.Choice(["column", "page"]), default="column", show_default=True, help="Of one or two columns.")
@click.option("--caption", type=click.Choice(["below", "none"]), default="below", show_default=True, help="Drawn below, or left out.")
@allow_option
@click.option("-o", "--output", required=True, metavar="FILE", help="A .pdf, .svg or .png.")
def draw_map(store, x, y, color, at, output, **options):
    """A map: two axes, a third quantity as filled contours.

    \b
    Example:
      sweep map iso-line --x tokens_per_domain --y achieved_tflops --color required_link_gbps -o map.png
      sweep map quickstart --x link_gbps --y dp --color exposed_fraction -o exposed.pdf
    """
    from . import maps, selections
    from .store import open_store

    drawing = maps.draw_map(open_store(store), x, y, color, selections.parse_at(at), output, **options)
    say(drawing.caption)
    click.echo(output)


# -- verbs: publish ------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("store")
@click.option("--where", metavar="EXPR", help="Points to write, such as 'tp * pp <= 16'.")
@at_option
@click.option("--columns", metavar="NAMES", help="Names to write.")
@click.option("--best", metavar="NAME", help="Only the best points, with --over; as in query.")
@click.option("--over", metavar="AXES", help="Axes that --best searches.")
@click.option("--pareto", metavar="NAMES", help="Only points that none beats in all of NAMES.")
@click.option("--limit", type=click.IntRange(1), help="Rows at most.")
@allow_option
@click.option("-o", "--output", required=True, metavar="FILE", help="A .csv, .parquet, .nc or .tex.")
def export(store, output, at, allow, **asked):
    """Write points or winners for other tools, with their provenance beside (FILE.provenance.json).

    \b
    Example:
      sweep export quickstart -o quickstart.parquet --where "exposed_fraction < 0.02"
      sweep export quickstart -o best.tex --best min:required_link_gbps --over tp,link_gbps
    """
    from . import exports, selections
    from .store import open_store

    asked = {key: value for key, value in asked.items() if value is not None}
    click.echo(exports.export(open_store(store), output, at=selections.parse_at(at), allow=allow, **asked))


cli_money.add(cli, table_format, at_option, say)  # fabric, economics, serve, capacity


# -- verbs: look up ----------------------------------------------------------------------------------------------------


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
    from . import summaries, tables
    from .store import open_store

    told = summaries.summary(open_store(store))
    if format == "table":
        click.echo(summaries.text(told))
    elif format == "json":
        click.echo(tables.render_json(told))
    else:
        click.echo(tables.render(told["outputs"], format))


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


if __name__ == "__main__":
    main()
