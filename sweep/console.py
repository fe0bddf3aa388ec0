"""What the verbs of the command line share: the group they belong to, options, and ways to speak.

Tables go to stdout, everything else to stderr.  A verb is a thin function in one of the cli_*.py files; it imports the
module that does the work inside itself, so that help and completion are instant.
"""

import difflib

import click

from . import __version__
from .errors import SpecError


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

    def format_commands(self, ctx, formatter):
        """The first sentence of each verb, whole: click would cut it at the line's end."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(200)) for name, verb in self.commands.items()])

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


def say(text):
    """A remark on stderr, unless --quiet."""
    if not quiet():
        click.echo(text, err=True)


def quiet():
    """Whether --quiet stands anywhere on the line."""
    context = click.get_current_context(silent=True)
    return bool(context and context.obj and context.obj.get("quiet"))


def opened(store):
    """The Dataset of a store to be asked; a remark where it is not finished."""
    from .store import open_store

    ds = open_store(store)
    if not ds.attrs.get("complete", 1):
        from . import inspections

        say(inspections.unfinished(ds.encoding["source"]))
    return ds


def complain(text):
    """An error on stderr, always one line."""
    click.echo("error: " + " ".join(str(text).split()), err=True)


def table_format(*more):
    """The option --format, for verbs that print a table."""
    choices = click.Choice(["table", "csv", "json", *more])
    return click.option("--format", "format", type=choices, default="table", help="Of what goes to stdout.")


set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace an axis or constant; the value in YAML. Repeatable."
)

at_option = click.option("--at", "at", multiple=True, metavar="NAME=LABEL", help="A slice: NAME=LABEL, =A,B or =LOW..HIGH. Repeatable.")
allow_option = click.option("--allow", multiple=True, metavar="REASON", help="A reason of status that does not disqualify. Repeatable.")


def load_spec(config, settings=()):
    """The Spec of a config with every --set applied."""
    from .spec import Spec

    spec = Spec.load(config)
    for assignment in settings:
        spec = spec.with_set(assignment)
    return spec
