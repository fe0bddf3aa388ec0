"""How far a run is, on stderr, from writes that are finished (jax returns long before a result exists).

In a terminal one line that renews itself, elsewhere a line every 30 seconds:

    [=========>          ]  47%  2.8 M of 5.9 M points, 3.4 M points/s, 1 s left
"""

import sys
import time

EVERY_S = 30.0
WIDTH = 20


class Bar:
    """Called with an ``execute.Progress`` after each block; ``close`` ends the line."""

    def __init__(self, stream=None, clock=time.monotonic):
        self.stream = stream or sys.stderr
        self.clock = clock
        self.live = self.stream.isatty()
        self.last = clock()
        self.drawn = 0

    def __call__(self, progress):
        now = self.clock()
        final = progress.blocks == progress.all_blocks
        if now - self.last < (0.1 if self.live else EVERY_S) and not final:
            return
        self.last = now
        text = line(progress)
        if self.live:
            self.stream.write("\r" + text.ljust(self.drawn))
            self.drawn = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def close(self):
        if self.drawn:
            self.stream.write("\n")
            self.stream.flush()
            self.drawn = 0


def line(progress):
    """One line of text."""
    share = progress.points / progress.all_points if progress.all_points else 1.0
    filled = int(share * WIDTH)
    bar = ("=" * filled + ">" * (filled < WIDTH)).ljust(WIDTH)
    done = f"{count(progress.points)} of {count(progress.all_points)} points"
    return f"[{bar}] {share:4.0%}  {done}, {count(progress.points_per_s)} points/s, {clock(progress.seconds_left)} left"


def clock(seconds):
    """Seconds as a person says them: 12 s, 4 min 05 s, 2 h 10 min."""
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def count(number):
    """A count with two digits and a prefix: 144, 52 k, 5.9 M, 1.2 G."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 9.95 * factor or (factor > 1e3 and number >= 0.995 * factor):
            scaled = number / factor
            return f"{scaled:.1f} {prefix}" if scaled < 9.95 else f"{scaled:.0f} {prefix}"
    return f"{number:.0f}"
