"""The engine: tasks, the streams they queue on, the tasks they wait for, and nothing else.

A stream runs its tasks one at a time, in the order in which they were added to it. A task starts when the one before it on its stream and
all tasks it waits for have ended. A task without a stream is a delay (a hop on a wire: it occupies nobody). When tasks slow each other
down (compute beside communication, two transfers on one link) ``run`` takes a function that says how fast each active stream advances.

Time in seconds, float64, standard library only.
"""


class Graph:
    """Tasks are numbers, in the order of their creation; ``name`` labels one for timelines and messages."""

    def __init__(self):
        self.seconds, self.stream, self.waits, self.names = [], [], [], []
        self.queues = {}

    def task(self, seconds, stream=None, after=(), name=""):
        """Add a task of so many ``seconds`` at full speed to the end of ``stream``; return its number."""
        number = len(self.seconds)
        self.seconds.append(seconds)
        self.stream.append(stream)
        self.waits.append([d for d in after if d is not None])
        self.names.append(name)
        if stream is not None:
            self.queues.setdefault(stream, []).append(number)
        return number

    def wait(self, task, after):
        """Let ``task`` wait for one more task (the two may have been created in either order)."""
        self.waits[task].append(after)

    def run(self, rates=None):
        """Seconds at which each task ends.

        ``rates``: None (every stream at full speed), or a function from the tuple of active streams (in the order in which they became
        active) to the list of their speeds.
        """
        return Run(self, rates).ends


class Run:
    """One execution of a graph: events in the order of time, from time 0 on."""

    def __init__(self, graph, rates=None):
        self.graph = graph
        count = len(graph.seconds)
        self.starts, self.ends = [0.0] * count, [0.0] * count
        self.pending = [len(w) for w in graph.waits]  # tasks still waited for
        self.followers = [[] for _ in range(count)]
        for task, waits in enumerate(graph.waits):
            for other in waits:
                self.followers[other].append(task)
        for queue in graph.queues.values():
            for before, after in zip(queue, queue[1:]):
                self.followers[before].append(after)
                self.pending[after] += 1
        self.done = 0
        (self._run_free if rates is None else self._run_shared)(rates)
        if self.done != count:
            stuck = [graph.names[t] or t for t in range(count) if self.pending[t] > 0]
            raise RuntimeError(f"{len(stuck)} tasks wait for each other: {stuck[:5]}")

    def _run_free(self, _):
        """Without rates a task's end is known when it starts, so tasks can be settled as soon as nothing holds them."""
        starts, ends, seconds = self.starts, self.ends, self.graph.seconds
        pending, followers = self.pending, self.followers
        ready = [t for t, p in enumerate(pending) if p == 0]
        while ready:
            task = ready.pop()
            self.done += 1
            end = ends[task] = starts[task] + seconds[task]
            for other in followers[task]:
                if end > starts[other]:
                    starts[other] = end
                pending[other] -= 1
                if pending[other] == 0:
                    ready.append(other)

    def _run_shared(self, rates):
        """With rates: advance all active tasks to the next completion, then ask for the speeds again."""
        stream, now = self.graph.stream, 0.0
        left = list(self.graph.seconds)
        active = [t for t, p in enumerate(self.pending) if p == 0]
        while active:
            finished = [t for t in active if left[t] <= 0.0]
            if not finished:
                busy = tuple(dict.fromkeys(stream[t] for t in active if stream[t] is not None))
                speed = dict(zip(busy, rates(busy)))
                speeds = [1.0 if stream[t] is None else speed[stream[t]] for t in active]
                step = min(left[t] / v for t, v in zip(active, speeds) if v > 0.0)
                now += step
                for t, v in zip(active, speeds):
                    if v > 0.0 and left[t] / v <= step * (1 + 1e-15):
                        left[t] = 0.0
                        finished.append(t)
                    else:
                        left[t] -= step * v
            for task in finished:
                active.remove(task)
                self.done += 1
                self.ends[task] = now
                for other in self.followers[task]:
                    self.pending[other] -= 1
                    if self.pending[other] == 0:
                        self.starts[other] = now
                        active.append(other)


def contention(slowdown, comm_slowdown, pairs=(("compute", "comm"),)):
    """Speeds where a compute and a communication stream of one GPU slow each other down: 1/(1+kappa) and 1/(1+kappa_c)."""
    other = {}
    for compute, comm in pairs:
        other[compute] = (comm, 1.0 / (1.0 + slowdown))
        other[comm] = (compute, 1.0 / (1.0 + comm_slowdown))

    def rates(busy):
        return [other[s][1] if s in other and other[s][0] in busy else 1.0 for s in busy]

    return rates


def yielding(pairs):
    """Speeds where the first stream of each pair stands still while the second is active (traffic that goes first on the same port)."""
    master = dict(pairs)

    def rates(busy):
        return [0.0 if master.get(s) in busy else 1.0 for s in busy]

    return rates


def shared_link(streams):
    """Speeds where some streams share one link fairly: k active ones advance at 1/k each."""
    streams = set(streams)

    def rates(busy):
        sharing = sum(s in streams for s in busy)
        return [1.0 / sharing if s in streams else 1.0 for s in busy]

    return rates
