"""Stores that are being made beside their place: templates, and the new one of an overwriting run.

When a store is overwritten the old one goes only when the new one is complete.

Between the two renames of a swap nothing is at the path; whoever looks for the store there next finishes the swap.
"""

import os
import socket
from pathlib import Path

from . import disk
from .errors import StoreError, listed
from .locks import process_runs


def swap(new, path):
    """Put the complete store ``new`` in the place of the one at ``path``, which goes only then."""
    new, path = Path(new), Path(path)
    old = path.with_name(f".{path.name}.old")
    if path.exists():
        disk.remove(old)
        disk.replace(path, old)
    disk.replace(new, path)
    disk.remove(old)


def refuse_foreign(path):
    """Refuse to overwrite a folder that is no store, or a store in which something else lies: it would be lost."""
    path = Path(path)
    if not path.exists():
        return
    if not (path / "zarr.json").exists() and (not path.is_dir() or any(path.iterdir())):
        raise StoreError(f"{path}: exists and is not a store, so nothing of it is overwritten. Choose another path with -o.")
    strangers = sorted(one.name for one in path.iterdir()
                       if one.name not in ("zarr.json", "_sweep") and not (one / "zarr.json").exists())
    if strangers:
        raise StoreError(f"{path}: {listed(strangers)} in it belongs to no sweep and would be lost. Move it away first.")


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


def template(path):
    """Where this process builds a new store before it is renamed to ``path``."""
    path = Path(path)
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.template")


def clear(path):
    """Remove templates of ``path`` that processes of this host were building when they died."""
    path = Path(path)
    for left in path.parent.glob(f".{path.name}.{socket.gethostname()}.*.template"):
        if not process_runs(int(left.name.split(".")[-2])):
            disk.remove(left)
