"""The house: imports point one way, libraries stay in their rooms, the API list is honest, no file is crowded."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sweep

ROOT = Path(__file__).resolve().parent.parent
SWEEP = {path.stem: path for path in (ROOT / "sweep").glob("*.py")}
KERNELS = {path.stem: path for path in (ROOT / "kernels").glob("*.py")}

# What must not be reachable from what, through any number of imports, those inside functions included.
BELOW = {
    "errors": {"*"},
    "_kernels": {"*", "errors"},
    "values": {"presets", "spec", "plan", "execute", "store"},
    "presets": {"spec", "plan", "execute", "store"},
    "mesh": {"spec", "plan", "execute", "store"},
    "spec": {"plan", "execute", "store", "queries", "maps", "exports", "explanations", "cli"},
    "plan": {"execute", "store", "queries", "maps", "exports", "explanations", "cli"},
    "templates": {"store", "execute", "queries", "maps", "exports", "explanations", "cli"},
    "store": {"execute", "queries", "maps", "exports", "explanations", "cli"},
    "execute": {"queries", "maps", "exports", "explanations", "cli"},
}
APART = {"queries": {"plan", "execute"}, "maps": {"plan", "execute"}, "exports": {"plan", "execute"}}


def imports(path):
    """Pairs (module, names) of every import in a file, relative ones with their leading dots."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)


def neighbours(path, package):
    """The modules of the same package that a file imports."""
    found = set()
    for module, names in imports(path):
        if module == ".":
            found |= set(names) & set(package)
        elif module.startswith("."):
            found.add(module[1:].split(".")[0])
    return found & set(package)


GRAPH = {name: neighbours(path, SWEEP) for name, path in SWEEP.items()}


def reachable(name, seen=None):
    seen = set() if seen is None else seen
    for other in GRAPH[name] - seen:
        seen.add(other)
        reachable(other, seen)
    return seen


def libraries(path):
    return {module.split(".")[0] for module, _ in imports(path) if not module.startswith(".")}


@pytest.mark.parametrize("name", sorted(BELOW))
def test_imports_point_one_way(name):
    allowed_of_errors = {"errors"} if name == "_kernels" else set()
    forbidden = set(SWEEP) - {name} - allowed_of_errors if "*" in BELOW[name] else BELOW[name]
    assert not reachable(name) & forbidden


@pytest.mark.parametrize("name", sorted(set(APART) & set(SWEEP)))
def test_reading_never_needs_running(name):
    assert not GRAPH[name] & APART[name]


def test_only_the_command_line_is_above_all():
    line = {name for name in SWEEP if name == "cli" or name == "console" or name.startswith("cli_")}
    assert not [name for name, others in GRAPH.items() if others & line and name not in line]


def test_kernels_come_through_one_door():
    for name, path in SWEEP.items():
        for module, _ in imports(path):
            assert name == "_kernels" or module.split(".")[0] != "kernels", f"sweep/{name}.py imports kernels directly"


def test_kernels_are_pure():
    allowed = set(sys.stdlib_module_names) | {"jax", "numpy"}
    effects = {"os", "io", "pathlib", "sys", "time", "datetime", "random", "logging", "subprocess", "threading", "socket"}
    for name, path in KERNELS.items():
        assert libraries(path) <= allowed - effects, f"kernels/{name}.py"
        calls = {node.func.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert not calls & {"print", "open", "input", "exec", "eval"}, f"kernels/{name}.py"


def test_libraries_stay_in_their_rooms():
    rooms = {"zarr": {"store", "templates"}, "yaml": {"presets"}, "click": {name for name in SWEEP if name in ("cli", "console") or name.startswith("cli_")}, "panel": {"explorer"}, "distributed": {"execute", "distribution"}, "dask": {"execute", "distribution"}}
    for name, path in SWEEP.items():
        for library in libraries(path) & set(rooms):
            assert name in rooms[library], f"sweep/{name}.py imports {library}"


def test_no_file_is_crowded():
    for folder in ("sweep", "kernels", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= 400, f"{path.relative_to(ROOT)} has {lines} lines: would two rooms be easier to live in?"


def test_every_module_says_what_it_is():
    for path in (*SWEEP.values(), *KERNELS.values()):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_no_unfinished_rooms():
    for path in (*SWEEP.values(), *KERNELS.values()):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("NotImplementedError", "TO" + "DO", "FIX" + "ME") if word in text], path


def test_the_api_list_is_honest():
    for name in sweep.__all__:
        home = importlib.import_module(f"sweep.{sweep._HOME[name]}")
        value = getattr(sweep, name)
        assert value is getattr(home, name) and value.__doc__, name
        assert name not in SWEEP, f"a module called {name} would replace sweep.{name} once it is imported"
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        sweep.nothing_of_that_name  # noqa: B018


@pytest.mark.parametrize(
    "code, absent",
    [
        ("import sweep", "numpy jax zarr xarray dask matplotlib yaml click"),
        ("import sweep; sweep.Spec.load('quickstart').mesh.block()", "jax zarr xarray dask matplotlib"),
    ],
)
def test_light_things_are_light(code, absent):
    check = f"{code}\nimport sys; print(*[name for name in {absent!r}.split() if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0 and ran.stdout.split() == [], ran.stdout + ran.stderr
