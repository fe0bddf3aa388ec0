"""Runs that are killed at a chosen moment, many of them: a process without jax that forks one child for each trial.

    python tests/kill_trials.py FOLDER calls          at every call that changes or syncs a file, in turn
    python tests/kill_trials.py FOLDER changes        the same of a sweep of two blocks, syncs aside: they leave the same files
    python tests/kill_trials.py FOLDER moments 200    at so many random moments
    python tests/kill_trials.py FOLDER real 10        the real model: processes of `sweep run`, so many killed at random moments
    python tests/kill_trials.py FOLDER interrupts 50  Ctrl-C at so many random moments of `sweep run`, its end among them

Each trial starts from nothing, from a store to be extended, or from one to be overwritten; kills the run; sees that what is left
opens (old or new, without a warning) or is not there yet; types the same command again; and compares every value with an
undisturbed run's.  The model is the toy one in NumPy, so that a trial takes a tenth of a second.
"""

import gc
import os
import random
import shutil
import signal
import sys
import threading
import time
import warnings
from functools import cache
from pathlib import Path

import google_crc32c  # noqa: F401  (imported once here, not once in each child)
import numcodecs  # noqa: F401
import numpy as np
import toy
import xarray as xr
import zarr.codecs  # noqa: F401

if "real" not in sys.argv[2:3]:
    toy.install()

import sweep
from sweep import disk, evaluations, execute, inspections, plan, stages, store

AXES = {"link_gbps": [100, 200, 400], "tp": [8, 16, 32], "seq_len": [1024, 2048, 4096, 8192]}
LESS = {**AXES, "seq_len": [1024, 8192]}


class NumpyStages(stages.Stages):
    """The stages without jax: what is handed on is found by evaluating at length 2."""

    def __call__(self, start):
        from sweep._kernels import model

        values = model.evaluate(self.mesh.block(tuple(start), self.shape), self.outputs)
        return {name: Fetched(self._array(name, values[name])) for name in self.outputs}

    @property
    def leaves(self):
        two = NumpyStages(self.mesh, self.outputs, (2,) * len(self.shape))((0,) * len(self.shape))
        found = {n: stages.Leaf(tuple(d for d, s in zip(self.mesh.dims, v.value.shape) if s > 1), 8) for n, v in two.items()}
        return {"inputs": [], "prepare": [], "combine": list(found.values()), "report": found, "equations": 0}

    def _array(self, name, value):
        value = np.asarray(value)
        value = value.reshape((1,) * len(self.shape)) if value.ndim == 0 else value
        return value.astype(stages.dtype_of(name)[0])


class Fetched:
    """An array that came from no device."""

    def __init__(self, value):
        self.value = value

    def copy_to_host_async(self):
        pass

    def __array__(self, dtype=None, copy=None):
        return self.value


def without_jax():
    """Put NumPy in the place of the compiled stages."""
    import contextlib

    plan.Stages = execute.Stages = NumpyStages
    execute.double_precision = contextlib.nullcontext
    execute.device_name = lambda: "numpy"
    execute.journal.COMMIT_EVERY = 0.02
    execute.provenance.model_sha256 = lambda: "toy"


def spec(axes=AXES, outputs=("step_time_s", "required_link_gbps", "bottleneck")):
    return toy.spec(axes, outputs, store={"block_points": 4})


SCENES = {
    "fresh": (None, {}),
    "extended": (lambda path: sweep.run(spec(LESS, ("step_time_s",)), path), {"extend": True}),
    "overwritten": (lambda path: sweep.run(spec(LESS), path), {"overwrite": True}),
}
CHANGES = ("replace", "append", "_write_pieces", "remove")  # of disk: everything a store goes through


def child(work):
    """Run ``work`` in a forked process; how it ended."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = work() or 0
        except BaseException as error:
            print(f"  {type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def trial(path, scene, arm):
    """One run, killed as ``arm`` says, and the same command again; True where it was killed before its end."""
    prepare, how = SCENES[scene]
    prepared = path.parent.parent / f"{scene}.zarr"
    for left in (*path.parent.glob("*"), *path.parent.glob(".*")):
        shutil.rmtree(left)
    if prepare:
        if not prepared.exists():
            assert child(lambda: prepare(prepared) and 0) == 0
        shutil.copytree(prepared, path)

    def killed_run():
        arm()
        sweep.run(spec(), path, **how)

    def mended():
        look(path, scene)
        sweep.run(spec(), path, **how)
        verify(path)

    killed = os.WIFSIGNALED(child(killed_run))
    assert child(mended) == 0, "it does not open, does not go on, or differs from an undisturbed run"
    return killed


def look(path, scene):
    """What is there opens, as plain xarray sees it, and is the old store or the new."""
    if scene == "fresh" and not path.exists():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = xr.open_zarr(store.find(path), chunks=None).load()
    assert ds.sizes["seq_len"] in ((4,) if scene == "fresh" else (2, 4)), ds.sizes
    if scene != "fresh" and ds.attrs["complete"] and ds.sizes["seq_len"] == 2:
        assert not ds.step_time_s.isnull().any()


def warm(path):
    """One undisturbed run in this process: what it imports and works out need not be done again in each child."""
    sweep.run(spec(), path)
    verify(path)
    shutil.rmtree(path)
    gc.freeze()  # children that collect garbage would copy every page
    gc.disable()


@cache
def expected():
    return evaluations.dataset(spec(), evaluations._in_numpy(spec().mesh, spec().outputs))


def verify(path):
    """Complete, whole by its own check, and equal to the plain model at every point."""
    ds = store.open_store(path)
    assert ds.attrs["complete"] == 1
    assert not [fault for fault in inspections.check(path) if fault.block]
    plain = expected()
    for name in plain.data_vars:
        want = plain[name].transpose(*ds[name].dims)
        assert ds[name].dtype == (np.float32 if want.dtype.kind == "f" else want.dtype)
        np.testing.assert_array_equal(ds[name].values, want.values.astype(ds[name].dtype))
    assert not list(path.rglob("*.partial"))
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == [path.name], names


def at_call(number, counting):
    """Kill this process before its ``number``-th call of those functions of disk."""

    def arm():
        counter, lock = iter(range(1, 10**9)), threading.Lock()

        def counted(function):
            def call(*arguments, **more):
                with lock:
                    if next(counter) == number:
                        os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **more)

            return call

        for name in counting:
            setattr(disk, name, counted(getattr(disk, name)))

    return arm


def after(seconds):
    """Kill this process after so long."""

    def arm():
        def kill():
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()

    return arm


def at_every_call(path, counting, step=1):
    for scene in SCENES:
        number, killed, kills = 1, True, 0
        while killed:
            try:
                killed = trial(path, scene, at_call(number, counting))
            except AssertionError as error:
                raise SystemExit(f"{scene}, killed at call {number}: {error}") from None
            number, kills = number + step, kills + killed
        print(f"{scene}: killed at {kills} of about {number - step} calls, every one mended", flush=True)


def at_random_moments(path, count):
    pick = random.Random(20260)
    kills = 0
    for number in range(count):
        scene, seconds = pick.choice(list(SCENES)), pick.uniform(0, 0.35)
        try:
            kills += trial(path, scene, after(seconds))
        except AssertionError as error:
            raise SystemExit(f"{scene}, killed after {seconds:.4f} s: {error}") from None
    print(f"{count} random moments: {kills} runs killed before their end, every one mended", flush=True)


def interrupted(path, seconds):
    """`sweep run` with SIGINT after so long: its exit code and whether it was done by then.  It says so in one line, never in a traceback."""
    from sweep import cli, cli_runs

    cli_runs.load_spec = lambda *_: spec()
    said = path.parent / "said.txt"

    def command():
        import signal

        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(said, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv[1:] = ["run", "toy", "-o", str(path), "--quiet"]
        threading.Thread(target=lambda: (time.sleep(seconds), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
        try:
            cli.main()
        except SystemExit as done:
            sys.stdout.flush()
            return done.code

    code = os.waitstatus_to_exitcode(child(command))
    words = said.read_text()
    said.unlink()
    assert "Traceback" not in words and "ignored" not in words, words
    assert code in (0, 130) and (code == 130) == ("interrupted" in words), (code, words)
    assert code == 130 or str(path) in words
    return code


def at_interrupts(path, count):
    pick, codes = random.Random(7), []
    for _ in range(2):  # the first imports what the others find imported
        shutil.rmtree(path, ignore_errors=True)
        began = time.perf_counter()
        assert interrupted(path, 1e6) == 0
        whole = time.perf_counter() - began
    for number in range(count):
        for left in (*path.parent.glob("*"), *path.parent.glob(".*")):
            shutil.rmtree(left)
        seconds = pick.uniform(0.01, 1.3 * whole) if number % 2 else pick.uniform(0.7, 1.2) * whole
        try:
            codes.append(interrupted(path, seconds))
            assert child(lambda: sweep.run(spec(), path) and 0) == 0, "the same command does not go on"
            assert child(lambda: verify(path)) == 0, "the values differ from an undisturbed run's"
        except AssertionError as error:
            raise SystemExit(f"interrupted after {seconds:.4f} s: {error}") from None
    print(f"{count} interrupts: {codes.count(130)} exits with 130, {codes.count(0)} with 0 where all was done before, every one mended", flush=True)


def at_moments_of_the_real_model(folder, count):
    """`sweep run` of a packaged config in small blocks, killed again and again on one store, against an undisturbed run's."""
    import subprocess

    import yaml

    from sweep.presets import read_yaml

    folder.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).resolve().parents[1]
    config = {**read_yaml(root / "configs" / "iso-line.yaml"), "store": {"block_points": 64}}
    (folder / "real.yaml").write_text(yaml.safe_dump(config))

    def start(path):
        command = [sys.executable, "-m", "sweep.cli", "run", str(folder / "real.yaml"), "-o", str(path), "--quiet"]
        return subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)

    assert start(folder / "undisturbed.zarr").wait() == 0
    path, pick, kills = folder / "a.zarr", random.Random(3), 0
    while kills < count:
        process, book = start(path), path / "_sweep" / "journal" / "all.jsonl"
        lines = book.stat().st_size if book.exists() else 0
        if kills % 3:  # else at any moment, its start and compiling among them
            while process.poll() is None and not (book.exists() and book.stat().st_size > lines + 600):
                time.sleep(0.01)
        time.sleep(pick.uniform(0, 0.3 if kills % 3 else 5))
        if process.poll() is not None:
            shutil.rmtree(path)
            continue
        process.kill()
        process.wait()
        kills += 1
    assert start(path).wait() == 0
    found, wanted = (xr.open_zarr(one, chunks=None).load() for one in (path, folder / "undisturbed.zarr"))
    xr.testing.assert_equal(found, wanted)
    assert not inspections.check(path) or all(fault.output == "_sweep/journal" for fault in inspections.check(path))
    print(f"real model, {wanted.sizes}: {kills} runs killed, every one mended", flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "real":
        sys.exit(at_moments_of_the_real_model(Path(sys.argv[1]), int(sys.argv[3])))
    without_jax()
    if sys.argv[2] == "changes":
        AXES.update({"link_gbps": [100, 400], "tp": [8], "seq_len": [1024, 2048, 4096, 8192]})
        LESS.update({**AXES, "seq_len": [1024, 8192]})
    place = Path(sys.argv[1]) / "trials" / "a.zarr"
    place.parent.mkdir(parents=True, exist_ok=True)
    warm(place)
    if sys.argv[2] in ("calls", "changes"):
        at_every_call(place, CHANGES if sys.argv[2] == "changes" else (*CHANGES, "_sync_one"), *map(int, sys.argv[3:]))
    elif sys.argv[2] == "interrupts":
        at_interrupts(place, int(sys.argv[3]))
    else:
        at_random_moments(place, int(sys.argv[3]))
    assert "jax" not in sys.modules
