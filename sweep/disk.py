"""The few things we ask of a file system, so that what is written survives.

A file appears whole under its name or not at all (written beside, then renamed); ``sync`` puts what was written on the
medium, which neither zarr nor a rename does.  Every change of a store goes through here: the tests record the calls and
stop the process at each of them.
"""

import errno
import os
import shutil
import threading
import time
from pathlib import Path

from .errors import StoreError

_RETRIES = (0.02, 0.05, 0.1, 0.3, 1.0)  # seconds: a scanner or indexer holds a file open on Windows for about as long


def write(path, *pieces):
    """Write the bytes ``pieces`` to ``path``, whole or not at all."""
    path = Path(path)
    beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        _write_pieces(beside, pieces)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_pieces(beside, pieces)
    replace(beside, path)


def replace(source, target):
    """Rename over ``target``, again for a moment where another process holds it open."""
    for pause in (*_RETRIES, None):
        try:
            return os.replace(source, target)
        except PermissionError:
            if pause is None:
                raise
            time.sleep(pause)


def append(path, data):
    """Append bytes to a file and put them on the medium; a torn last line is closed first."""
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(paths):
    """Put files and the folders that name them on the medium; files that are gone are passed over."""
    folders = set()
    for path in paths:
        _sync_one(path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        _sync_one(folder)


def sync_tree(folder):
    """Put a whole folder on the medium."""
    for root, _, files in os.walk(folder):
        for name in files:
            _sync_one(os.path.join(root, name))
        _sync_one(root)


def remove(path):
    """Remove a file or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def remove_partial(folder):
    """Remove the files that writers which died had begun and not yet renamed."""
    for root, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".partial"):
                remove(os.path.join(root, name))


def free_bytes(folder):
    """Bytes free where ``folder`` is, or will be."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def memory_bytes():
    """Bytes of memory that can still be had, the limit of a container included; None where the system does not say."""
    found = []
    try:
        with open("/proc/meminfo") as file:
            found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")]
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        found += [int(limit) - int(used)] if limit != "max" else []
    except (OSError, ValueError):
        pass
    return min(found) if found else None


def explained(error, path):
    """An OSError as one sentence that ends in what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"{path}: the disk is full. Free some space and type the same command again: it goes on from here.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreError(f"{path}: cannot be written ({error.strerror}). Choose another place with -o.")
    return StoreError(f"{path}: {error.strerror or error}. When that is mended, the same command goes on from here.")


def _write_pieces(path, pieces):
    try:
        with open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)
    except OSError:
        Path(path).unlink(missing_ok=True)
        raise


def _sync_one(path):
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):  # a folder cannot be opened on Windows
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
