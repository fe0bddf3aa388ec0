"""Ctrl-C while a sweep runs: the blocks in flight are finished, then the run stops.

Python raises KeyboardInterrupt wherever the program happens to be; within a callback of the garbage collector it is printed and lost.
So while a sweep runs the first Ctrl-C only leaves a note, which the loops look at between two blocks; a second one interrupts at once.
"""

import signal
import sys
import threading


class Held:
    """A context in which Ctrl-C sets ``asked``; leaving it raises the KeyboardInterrupt that was held back.

    With ``at_once`` it is raised where it falls as well: a terminal interrupts worker processes too, and nothing is left to wait for.
    Signals belong to the main thread: elsewhere, and where the program has a handler of its own, nothing is changed.
    """

    def __init__(self):
        self.asked, self.at_once, self._before = False, False, None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind, error, trace):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.asked and kind is None:
            raise KeyboardInterrupt

    def _note(self, number, frame):
        again, self.asked = self.asked, True
        if again or self.at_once:
            raise KeyboardInterrupt


class Lost:
    """A context that notes a KeyboardInterrupt raised where Python can only print it; leaving it raises that again."""

    def __init__(self):
        self.found, self._before = False, None

    def __enter__(self):
        self._before, sys.unraisablehook = sys.unraisablehook, self._note
        return self

    def __exit__(self, kind, error, trace):
        sys.unraisablehook = self._before
        if self.found and kind is None:
            raise KeyboardInterrupt

    def _note(self, unraisable):
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.found = True
        else:
            self._before(unraisable)
