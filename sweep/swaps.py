"""Overwriting a store: the new one is built beside, and the old one goes only when the new one is complete.

Between the two renames of a swap nothing is at the path; whoever looks for the store there next finishes the swap.
"""

from pathlib import Path

from . import disk


def swap(new, path):
    """Put the complete store ``new`` in the place of the one at ``path``, which goes only then."""
    new, path = Path(new), Path(path)
    old = path.with_name(f".{path.name}.old")
    if path.exists():
        disk.remove(old)
        disk.replace(path, old)
    disk.replace(new, path)
    disk.remove(old)


def replacement(path):
    """Where the store that will replace ``path`` is being built."""
    path = Path(path)
    return path.with_name(f".{path.name}.new")


def finish_swap(path):
    """End a swap that was stopped between its two renames: nothing is at ``path``, the complete new store lies beside."""
    path, old = Path(path), Path(path).with_name(f".{Path(path).name}.old")
    if path.exists() or not old.exists():
        return
    disk.replace(replacement(path) if replacement(path).exists() else old, path)
