"""The command line: one thin function for each verb, which calls the module that does the work.

Tables go to stdout, everything else to stderr.  Exit 0: done; 2: something you can mend, in one sentence; 1: our fault;
130: interrupted.  Modules are imported inside the verbs, so that help and completion are instant.
"""

import difflib
import os
import sys

import click

from . import __version__
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
    context = click.get_current_context(silent=True)
    if not (context and context.find_root().obj and context.find_root().obj.get("quiet")) and not _quiet(context):
        click.echo(text, err=True)


def _quiet(context):
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


# -- verbs: look up ----------------------------------------------------------------------------------------------------


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
