"""The one door to the kernels.

``from ._kernels import quantities, model`` gives the modules of the kernels package, wherever it lies:

- in a wheel it is ``sweep.kernels`` (a flat ``kernels`` would overwrite another project's package of that name, and be
  overwritten by it);
- in a checkout, bare or installed as editable, it is the folder ``kernels`` beside ``sweep``.  It keeps the name
  ``kernels`` there unless a stranger of that name comes first on the path: then ours is loaded as ``sweep.kernels``, so
  that both work in one process.

Nothing is imported before it is asked for, so that this door costs nothing and never imports jax.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

from .errors import SweepError

_HERE = Path(__file__).resolve().parent
_MISSING = (
    "The kernels are missing from this installation (a package that is called 'kernels' alone is another project's). "
    "Type: pip install --force-reinstall overlap-sweep."
)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        module = importlib.import_module(f"{_package()}.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.endswith(f"kernels.{name}"):
            raise AttributeError(f"the kernels have no module {name!r}") from None
        raise
    globals()[name] = module
    return module


def folder():
    """The folder that the kernels' sources lie in."""
    return Path(importlib.import_module(_package()).__file__).resolve().parent


def _package():
    """The importable name of our kernels package."""
    if "sweep.kernels" in sys.modules or _ours(_HERE / "kernels"):
        return "sweep.kernels"
    beside = _HERE.parent / "kernels"
    if not _ours(beside):
        raise SweepError(_MISSING)
    if _found() == beside:
        return "kernels"
    spec = importlib.util.spec_from_file_location(
        "sweep.kernels", beside / "__init__.py", submodule_search_locations=[str(beside)]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["sweep.kernels"] = package
    spec.loader.exec_module(package)
    return "sweep.kernels"


def _ours(folder):
    return (folder / "quantities.py").is_file()


def _found():
    """The folder of whatever is called ``kernels`` on the path, or None."""
    if "kernels" in sys.modules:
        origin = getattr(sys.modules["kernels"], "__file__", None)
    else:
        spec = importlib.util.find_spec("kernels")
        origin = spec.origin if spec else None
    return Path(origin).resolve().parent if origin else None
