"""The command line.  The verbs live in the cli_*.py files, in the order of the work; what they share is in console.py.

Exit 0: done; 2: something you can mend, in one sentence; 1: our fault; 130: interrupted.
"""

import os
import signal
import sys

import click

from . import cli_runs, cli_asks, cli_answers, cli_measured, cli_money  # noqa: F401, I001  each adds its verbs to the group, in this order
from .console import cli, complain
from .errors import SweepError
from .interrupts import Lost


def main(arguments=None):
    """The entry point: every error is one line and an exit code."""
    whole_process = arguments is None
    arguments = sys.argv[1:] if whole_process else list(arguments)
    debug = "--debug" in arguments or bool(os.environ.get("SWEEP_DEBUG"))
    try:
        with Lost():
            code = cli.main(arguments, prog_name="sweep", standalone_mode=False)
            sys.stdout.flush()
        if whole_process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done and said: what is left is to leave
        sys.exit(code if isinstance(code, int) else 0)
    except (SweepError, click.ClickException) as error:
        if debug:
            raise
        complain(_usage(error) if isinstance(error, click.ClickException) else str(error))
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        complain(f"our fault: {type(error).__name__}: {error}. The same command with --debug shows where.")
        sys.exit(1)


def _usage(error):
    """click's message, and the help to type."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sweep"
    message = error.format_message()
    return f"{path}: {message}{'' if message.endswith(('.', '?')) else '.'} Type: {path} --help."


if __name__ == "__main__":
    main()
