"""One writer for each part of a store.

A lock is a small file that names its holder (host, process, when that process started) and holds a beat, a number that
the holder raises every few seconds.  On the holder's own host the process table says whether it lives.  From elsewhere
the beat is watched: a lock whose beat does not move is stale.  No two clocks are compared, so a clock that jumps does no harm.
"""

import json
import os
import socket
import threading
import time
from pathlib import Path

from . import disk
from .errors import StoreError

BEAT = 2.0  # seconds between two beats
PATIENCE = 5 * BEAT  # seconds without a beat after which a holder elsewhere is taken for dead


class Lock:
    """The lock of one part (``all``, or ``i-of-n``) of the store at ``path``; a context manager."""

    def __init__(self, path, part="all"):
        self.folder = Path(path) / "_sweep" / "lock"
        self.path, self.part, self.store = self.folder / f"{part}.json", part, path
        self._stop, self._thread = threading.Event(), None
        self._held = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid()), "beat": 0}

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for other in sorted(self.folder.glob("*.json")):
            if other == self.path or "all" in (self.part, other.stem):
                self._refuse_if_held(other)
        while not self._create():
            self._refuse_if_held(self.path)
        self._thread = threading.Thread(target=self._keep_beating, name="sweep-lock", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        if _read(self.path).get("token") == self._token:
            disk.remove(self.path)

    def _create(self):
        """Create the file, unless another was faster."""
        self._token = f"{self._held['host']}:{self._held['pid']}:{time.time_ns()}"
        try:
            with open(self.path, "x") as file:
                json.dump({**self._held, "token": self._token}, file)
        except FileExistsError:
            return False
        return True

    def _refuse_if_held(self, path):
        """Raise where a live process holds the lock at ``path``; remove it where the holder is gone."""
        holder = _read(path)
        if not holder and path.exists():  # just being written, or torn: look again
            time.sleep(0.2)
            holder = _read(path)
        if holder and _alive(path, holder):
            raise StoreError(
                f"{self.store}: another run is writing it (process {holder['pid']} on {holder['host']}). "
                "Wait for it, or stop it and type the same command again."
            )
        disk.remove(path)

    def _keep_beating(self):
        while not self._stop.wait(BEAT):
            self._held["beat"] += 1
            try:
                if _read(self.path).get("token") == self._token:
                    disk.write(self.path, json.dumps({**self._held, "token": self._token}).encode())
            except OSError:
                pass  # a full disk is reported by the writers


def _read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _alive(path, holder):
    if holder.get("host") == socket.gethostname():
        return process_runs(holder["pid"]) and _started(holder["pid"]) == holder.get("started")
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(BEAT / 4)
        if _read(path).get("beat") != holder.get("beat"):
            return path.exists()
    return False


def process_runs(pid):
    """True where a process of that number runs on this host."""
    if os.name == "nt":
        return True  # no harmless probe: the beat would have to tell
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started(pid):
    """When a process started, in the system's own ticks, or None: tells a reused process number."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
