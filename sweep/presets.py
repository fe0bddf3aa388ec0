"""Presets: models, accelerators, fabrics and stacks by name, every number with its source.

A preset is an entry of a YAML file, a mapping of quantities to numbers (or words, for a category):

    h100:
      peak_tflops: {bf16: 989, fp8: 1979}      a quantity may depend on the compute dtype
      hbm_gb: 80
      source: where the numbers come from
      source_of: {accelerator_usd: assumption}  where single numbers come from elsewhere
      aliases: [h100-sxm]                       other names of the entry
      facts: {max_matmul_tflops: ...}           what is worth keeping and is no input of the model

The files are ``presets/{models,accelerators,fabrics,stacks}.yaml`` in each of ``config_folders()``; an entry found first
hides those of the same name after it.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import yaml

from . import values
from ._kernels import quantities
from .errors import SpecError, did_you_mean

TABLES = {"model": "models", "accelerator": "accelerators", "fabric": "fabrics", "stack": "stacks"}
"""Key in a config -> file.  A quantity that several tables give is taken from the last of them in this order."""

_WORDS = ("source", "source_of", "note", "aliases", "facts")


class Preset(NamedTuple):
    """One entry: ``numbers`` maps a quantity to its value, or to {dtype: value}; ``source`` and the rest say whence."""

    name: str
    numbers: dict
    source: str = ""
    source_of: dict = {}
    note: str = ""
    aliases: tuple = ()
    facts: dict = {}
    file: str = ""


def find(table, name, place=""):
    """The preset of a name or alias; ``table`` is ``model``, ``accelerator``, ``fabric`` or ``stack``."""
    entries = read_table(table)
    if not isinstance(name, str):
        raise SpecError(f"{place}: {str(name)[:40]} is not the name of a preset. Write a name of: sweep presets {table}.")
    if name in entries:
        return entries[name]
    for preset in entries.values():
        if name in preset.aliases:
            return preset
    known = list(entries) + [alias for preset in entries.values() for alias in preset.aliases]
    where = f"{place}: " if place else ""
    raise SpecError(f"{where}{name!r} is no {table}. {did_you_mean(name, known)} Type: sweep presets {TABLES[table]}.")


def read_table(table):
    """Every preset of a table, name -> Preset, in the order of the files."""
    entries = {}
    for folder in config_folders():
        path = folder / "presets" / f"{TABLES[table]}.yaml"
        if path.is_file():
            for name, preset in _read(path, table, path.stat().st_mtime_ns).items():
                entries.setdefault(name, preset)
    return entries


def config_folders():
    """Where configs and presets are looked up: the working folder's ``configs``, the user's folder, the packaged ones."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA") or Path.home() / ".config"
    here = Path(__file__).resolve().parent
    packaged = here / "configs" if (here / "configs").is_dir() else here.parent / "configs"
    folders = {}
    for folder in (Path("configs"), Path(home) / "overlap-sweep", packaged):
        try:
            (folder / "presets").stat()
        except PermissionError:  # of a home that belongs to somebody else, as in a container
            continue
        except OSError:
            pass
        folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def find_config(name):
    """The path of a config: a path as it is, else ``NAME.yaml`` in the config folders."""
    path = Path(name)
    if path.is_file():
        return path
    candidates = [] if path.suffix and path.suffix not in (".yaml", ".yml") else config_folders()
    for folder in candidates:
        found = folder / (name if path.suffix else f"{name}.yaml")
        if found.is_file():
            return found
    known = [p.stem for folder in config_folders() for p in sorted(folder.glob("*.yaml"))]
    if path.is_dir():
        raise SpecError(f"{name} is a folder. Write the path of a config, such as configs/quickstart.yaml.")
    raise SpecError(f"{name}: there is no such config. {did_you_mean(path.stem, dict.fromkeys(known))}")


def read_yaml(path):
    """The content of a YAML 1.2 file; a syntax error or a key that stands twice is one sentence with its line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return yaml.load(text, Loader=_Loader)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}). Give the path of a readable file.") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not UTF-8 text. Save it as UTF-8.") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path}{_line(error)}: {_problem(error, text)}") from None


def parse_yaml(text, place):
    """A YAML value from a command line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise SpecError(f"{place}: {_problem(error)}") from None


MARK = "# -- written by sweep calibrate: edit above this line --"


def write_presets(table, entries, folder="configs"):
    """Add or replace entries (name -> mapping) of a table in the working folder's configs, never in site-packages; returns the path.

    They stand below a mark; what was written by hand above it keeps its comments.
    """
    path = Path(folder) / "presets" / f"{TABLES[table]}.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    above, _, below = text.partition(MARK)
    by_hand, written = parse_yaml(above, path) or {}, parse_yaml(below, path) or {}
    for name, entry in entries.items():
        if name in by_hand:
            raise SpecError(f"{path}, {name}: is written by hand. Choose another name, or remove that entry.")
        _entry(name, entry, table, path)
        written[name] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(yaml.safe_dump({name: written[name]}, sort_keys=False, width=150, allow_unicode=True) for name in sorted(written))
    beside = path.with_suffix(".yaml.new")
    beside.write_text("\n\n".join(part for part in (above.strip(), MARK, body) if part), encoding="utf-8")
    os.replace(beside, path)
    return path


def write_preset(table, name, entry, folder="configs"):
    """``write_presets`` of one entry."""
    return write_presets(table, {name: entry}, folder)


@lru_cache(maxsize=32)
def _read(path, table, _modified):
    content = read_yaml(path) or {}
    if not isinstance(content, dict):
        raise SpecError(f"{path}: is not a mapping. Write names with their quantities below, such as h100: {{hbm_gb: 80}}.")
    return {str(name): _entry(str(name), entry, table, path) for name, entry in content.items()}


def _entry(name, entry, table, path):
    place = f"{path}, {name}"
    if not isinstance(entry, dict):
        raise SpecError(f"{place}: is not a mapping. Write quantities below it, such as hbm_gb: 80.")
    if not entry.get("source"):
        raise SpecError(f"{place}: has no source. Write one, or source: assumption.")
    numbers = {}
    for key, value in entry.items():
        if key in _WORDS:
            continue
        quantity = quantities.INPUTS.get(key)
        if quantity is None:
            raise SpecError(f"{place}.{key}: is no quantity. {did_you_mean(key, [*quantities.INPUTS, *_WORDS])}")
        if isinstance(value, dict):
            dtypes = quantities.INPUTS["dtype"]
            for dtype in value:
                values.scalar(dtypes, dtype, f"{place}.{key}")
            numbers[key] = {dtype: values.scalar(quantity, v, f"{place}.{key}.{dtype}") for dtype, v in value.items()}
        else:
            numbers[key] = values.scalar(quantity, value, f"{place}.{key}")
    return Preset(name, numbers, str(entry["source"]), dict(entry.get("source_of") or {}), str(entry.get("note") or ""),
                  tuple(str(a) for a in entry.get("aliases") or ()), dict(entry.get("facts") or {}), str(path))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML 1.2's idea of scalars (PyYAML's own is 1.1: `no` is false, 1e3 a word, 12:30 a number), and no double keys."""

    yaml_implicit_resolvers = {}

    def construct_mapping(self, node, deep=False):
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float)):
                raise yaml.constructor.ConstructorError(None, None, "a key is not a word", key_node.start_mark)
            if key in keys:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep=deep)


def _scalars():
    import re

    number = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|[-+]?inf$|\.(nan|NaN|NAN)$")
    for tag, pattern, first in (
        ("bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), "tTfF"),
        ("int", re.compile(r"[-+]?[0-9]+$"), "-+0123456789"),
        ("float", number, "-+.0123456789i"),
        ("null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ):
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, list(first))
    _Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
    _Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _float(loader.construct_scalar(node)))


def _float(text):
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_scalars()


def _line(error):
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}" if mark else ""


def _problem(error, text=""):
    problem = getattr(error, "problem", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "a tab stands where spaces belong. Indent with spaces."
    if "stands twice" in problem:
        return f"{problem}. Remove one of the two."
    return f"is not YAML ({problem}). Mend the line, or quote the text."
