"""Errors that people meet: one sentence that says where, what, and what to type.

    SweepError
"""


class SweepError(Exception):
    """Anything wrong with what was asked.  The command line prints its one line and exits with 2."""
