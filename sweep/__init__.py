"""Why about 400 Gb/s per GPU: exact sweeps of communication under compute.

    import sweep
    sweep.evaluate(model="llama-3-70b", accelerator="h100", tp=8, dp=128).required_link_gbps

The names below are the API; nothing else is promised.  Each is imported when it is first asked for, so that
``import sweep`` costs nothing.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Spec": "spec",
    "Plan": "plan",
    "run": "execute",
    "evaluate": "evaluations",
    "open_store": "store",
    "query": "queries",
    "draw_map": "maps",
    "draw_lines": "lineplots",
    "draw_scaling": "lineplots",
    "draw_distribution": "lineplots",
    "draw_busbw": "lineplots",
    "draw_grid": "barplots",
    "draw_breakdown": "barplots",
    "draw_requirements": "barplots",
    "gallery": "galleries",
    "paper": "papers",
    "export": "exports",
    "explain": "explanations",
    "solve": "inversions",
    "SweepError": "errors",
}

__all__ = list(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
