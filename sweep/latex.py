"""Tables, numbers and words for LaTeX: booktabs rules, siunitx columns and units, names escaped."""

import math

ROWS = 200  # a table longer than this belongs into a data file
UNITS = {
    "s": r"\second", "Gb/s": r"\giga\bit\per\second", "TFLOP/s": r"\tera\flop\per\second", "GB": r"\giga\byte", "byte": r"\byte",
    "GB/s": r"\giga\byte\per\second", "us": r"\micro\second", "ms": r"\milli\second", "W": r"\watt", "USD": r"\text{USD}", "1/s": r"\per\second",
}  # fmt: skip
_ESCAPES = {"\\": r"\textbackslash{}", **{c: f"\\{c}" for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def table(frame, names=None, digits=4):
    """A DataFrame as a ``tabular`` with heads of long name and unit; infinity as the sign, NaN as a dash."""
    from .errors import SweepError

    if len(frame) > ROWS:
        raise SweepError(f"{len(frame):,} rows are too many for a LaTeX table (at most {ROWS}). Ask for less with best, where or limit.")
    units = frame.attrs.get("units", {})
    numeric = {name: frame[name].dtype.kind in "fiu" for name in frame.columns}
    frame = frame.astype(object).where(frame.notna(), math.nan)
    heads = []
    for name in frame.columns:
        head = escape((names or {}).get(name) or str(name).replace("_", " "))
        unit = UNITS.get(units.get(name, ""), "")
        heads.append(f"{{{head} (\\unit{{{unit}}})}}" if unit else f"{{{head}}}")
    columns = "".join(f"S[table-format={_format(frame[name], digits)}]" if numeric[name] else "l" for name in frame.columns)
    rows = [" & ".join(_cell(value, numeric[name], digits) for name, value in zip(frame.columns, row)) + r" \\" for row in frame.itertuples(index=False)]
    lines = [
        "% needs \\usepackage{booktabs,siunitx}",
        f"\\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def number(value, digits=4):
    """A number as siunitx reads it, with so many significant digits."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "{--}"
    if math.isinf(value):
        return r"{$\infty$}" if value > 0 else r"{$-\infty$}"
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    shown = float(f"{value:.{digits}g}")
    return f"{shown:.0f}" if shown == int(shown) else f"{shown:.{digits}g}"


def escape(text):
    """Text in which every character means itself."""
    return "".join(_ESCAPES.get(character, character) for character in str(text))


def macro(name):
    """A control word of letters: digits spelled, everything else left out (``requiredLinkGbpsHone...``)."""
    digits = dict(zip("0123456789", ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")))
    words, upper = [], False
    for character in str(name):
        if character in digits:
            words.append(digits[character])
            upper = True
        elif character.isascii() and character.isalpha():
            words.append(character.upper() if upper else character)
            upper = False
        else:
            upper = True
    return "".join(words)


def _cell(value, numeric, digits):
    if numeric:
        value = value.item() if hasattr(value, "item") else value
        return number(value, digits)
    return "--" if value is None or value != value else escape(value)


def _format(column, digits):
    """siunitx's table-format: digits before and after the point of the widest number."""
    before, after, exponent = 1, 0, 0
    for value in column:
        text = number(value.item() if hasattr(value, "item") else value, digits)
        if text.startswith("{"):
            continue
        mantissa, _, power = text.partition("e")
        whole, _, rest = mantissa.lstrip("-").partition(".")
        before, after, exponent = max(before, len(whole)), max(after, len(rest)), max(exponent, len(power.lstrip("-")))
    sign = "-" if any(float(v) < 0 for v in column if v == v) else ""
    return f"{sign}{before}.{after}" + (f"e-{exponent}" if exponent else "")
