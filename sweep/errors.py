"""What can go wrong, in one sentence each.

    SweepError              anything a person can mend: where, what was found, what to type
    ├── SpecError           a config, an argument or a preset
    ├── ExpressionError     a `where` or a query
    ├── PlanError           a sweep that does not fit the disk, the memory or a limit
    ├── StoreError          a store: missing, of another sweep, locked, corrupt, not writable
    └── DataError           a log, a calibration or a table of measurements

The command line prints the sentence and exits with 2; a traceback only with ``--debug``.  Every other exception is our
fault and exits with 1.
"""

import difflib


class SweepError(Exception):
    """Base of all errors that a person can mend."""


class SpecError(SweepError):
    """A config, an argument or a preset says something that cannot be used."""


class ExpressionError(SweepError):
    """A `where` or a query cannot be read."""


class PlanError(SweepError):
    """A sweep does not fit."""


class StoreError(SweepError):
    """A store cannot be read or written."""


class DataError(SweepError):
    """A log, a calibration or a table of measurements cannot be used."""


def did_you_mean(word, known, limit=8):
    """A sentence that helps with an unknown name: the near misses, else the first few of what there is."""
    known = sorted(str(name) for name in known)
    near = difflib.get_close_matches(str(word).lower().replace("_", "-"), [n.replace("_", "-") for n in known], 3, 0.6)
    near = [name for name in known if name.replace("_", "-") in near]
    if near:
        return f"Did you mean {listed(near)}?"
    if not known:
        return "There are none."
    more = "" if len(known) <= limit else f" and {len(known) - limit} more"
    return f"Known: {', '.join(known[:limit])}{more}."


def listed(words):
    """'a', 'b' or 'c'."""
    quoted = [repr(str(word)) for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
