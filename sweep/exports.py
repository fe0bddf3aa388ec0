"""Answers and whole sweeps written for other tools: table, CSV, JSON, parquet, NetCDF, LaTeX.

``export`` streams block by block, so that ten million rows need no more memory than a few blocks, and writes beside the
file where its numbers come from (``FILE.provenance.json``): the spec, its hash, model, versions, slice and condition.
"""

import sys

from . import tables


def write_frame(frame, format, stream):
    """A query's answer on a text stream: ``table`` (units in the header), ``csv``, ``json`` or ``parquet`` (binary)."""
    if format == "parquet":
        frame.to_parquet(getattr(stream, "buffer", stream), index=False)
        return
    units = frame.attrs.get("units", {})
    names = {name: f"{name}" for name in frame.columns}
    rows = frame.astype(object).where(frame.notna(), None).rename(columns=names).to_dict("records")
    if not rows and format == "table":
        print("no point matches", file=sys.stderr)
    stream.write(tables.render(rows, format, list(names.values())) + "\n")
