"""Rows for people and for programs: a table, CSV or JSON on one text.

JSON has neither NaN nor infinity: null stands for the one, the string "inf" for the other.  In a table numbers have four
significant digits; in CSV and JSON all of them.
"""

import csv
import io
import json
import math

FORMATS = ("table", "csv", "json")


def render(rows, format="table", columns=None):
    """A list of mappings as text; ``columns`` are their keys in order (default: those of the first row)."""
    rows = list(rows)
    columns = list(columns or (rows[0] if rows else ()))
    if format == "json":
        return render_json([{column: row.get(column) for column in columns} for row in rows])
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_exact(row.get(column)) for column in columns] for row in rows)
        return text.getvalue().rstrip("\n")
    cells = [[short(row.get(column)) for column in columns] for row in rows]
    right = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    widths = [max(len(line[k]) for line in [columns, *cells]) for k in range(len(columns))]
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right)).rstrip()
        for line in [columns, *cells]
    ]
    return "\n".join(lines)


def render_json(value):
    """Any plain value as JSON text, readable and strict."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value):
    """JSON's own types: NumPy scalars and arrays unpacked, NaN as null, infinity as "inf" or "-inf"."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def short(value):
    """A cell for reading."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.0f}" if value == round(value) and abs(value) < 1e10 else f"{value:.4g}"
    return str(value)


def _exact(value):
    value = plain(value)
    return "" if value is None else value


def _is_number(value):
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) or hasattr(value, "dtype")
