"""The wheel: `sweep` alone at the top, whole, and at home beside another project's `kernels`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WHERE = "from sweep._kernels import quantities, folder; print(quantities.__name__, folder())"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder like site-packages with the wheel in it, and a stranger called `kernels` beside it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    _stranger(folder)
    return folder


def _stranger(folder):
    (folder / "kernels").mkdir()
    (folder / "kernels" / "__init__.py").write_text("who = 'stranger'\n")


def _python(code, folder, *arguments, path=()):
    """Run code in another process, away from the checkout, with ``folder`` first on its path."""
    environment = {"PYTHONPATH": ":".join(map(str, [folder, *path])), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments, "-c", code], capture_output=True, text=True, cwd=folder, env=environment
    )


def test_wheel_has_sweep_alone_at_the_top(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"sweep"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_wheel_holds_every_kernel_and_config(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("kernels", "configs"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"sweep/{path.relative_to(ROOT).as_posix()}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_works_beside_another_projects_kernels(installed):
    ran = _python(f"import kernels; print(kernels.who); {WHERE}", installed)
    assert ran.stdout.split() == ["stranger", "sweep.kernels.quantities", str(installed / "sweep" / "kernels")], ran.stderr
    ran = _python("from sweep.spec import Spec; print(Spec.load('quickstart').mesh.size)", installed)
    assert ran.stdout.strip() == "144", ran.stderr


def test_stranger_first_on_the_path_of_a_checkout(tmp_path):
    _stranger(tmp_path)
    ran = _python(f"import kernels; print(kernels.who); {WHERE}", tmp_path, path=[ROOT])
    assert ran.stdout.split() == ["stranger", "sweep.kernels.quantities", str(ROOT / "kernels")], ran.stderr


def test_bare_checkout_keeps_the_name(tmp_path):
    ran = _python(WHERE, ROOT)
    assert ran.stdout.split() == ["kernels.quantities", str(ROOT / "kernels")], ran.stderr


def test_kernels_missing_is_one_sentence(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if not name.startswith("sweep/kernels")])
    _stranger(tmp_path)
    ran = _python("from sweep.cli import main; main(['presets'])", tmp_path)
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1
    assert "pip install --force-reinstall overlap-sweep" in ran.stderr


def test_editable_install_reads_the_checkout(tmp_path):
    code = f"import os, hatchling.build; os.chdir({str(ROOT)!r}); print(hatchling.build.build_editable({str(tmp_path)!r}))"
    built = _python(code, tmp_path)
    assert built.returncode == 0, built.stderr
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / built.stdout.split()[-1]) as archive:
        archive.extractall(site)
    _stranger(site)
    code = f"import site; site.addsitedir({str(site)!r}); import sweep; print(sweep.__file__); {WHERE}"
    ran = _python(code, site)
    assert ran.stdout.split() == [str(ROOT / "sweep/__init__.py"), "sweep.kernels.quantities", str(ROOT / "kernels")], ran.stderr


def test_what_is_imported_is_declared():
    """Every library that sweep/ and kernels/ import stands in pyproject.toml, as a dependency or in an extra."""
    import ast
    import re
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    declared = {re.match(r"[A-Za-z0-9_-]+", line)[0].lower().replace("-", "_") for line in wanted}
    declared |= {"yaml"} if "pyyaml" in declared else set()
    declared |= {"dask"} if "distributed" in declared else set()
    imported = set()
    for path in (*(ROOT / "sweep").glob("*.py"), *(ROOT / "kernels").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    missing = {name for name in imported - set(sys.stdlib_module_names) - {"kernels", "sweep"} if name.lower() not in declared}
    assert not missing
