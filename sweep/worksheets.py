"""A worked calculation as a document: sections of lines and tables, rendered as text, Markdown, LaTeX or plain values.

A line says in words what it works out, the formula in symbols, the same with numbers, the value with its unit, and the
equation of kernels/README.md that it follows.  Formulas are written as people read them in a terminal
(``2 (n_out - 1)/n_out V/n_in``); LaTeX is made from that.
"""

import math
import re
import textwrap
from typing import NamedTuple

from . import latex, tables
from .errors import SpecError

WIDTH, WORDS = 110, 44  # of a text: the page, and the column of words on it
UNITS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")),
    "byte": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "byte/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    "FLOP": ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1.0, "FLOP")),
    "FLOP/s": ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1.0, "FLOP/s")),
    "parameters": ((1e12, "T parameters"), (1e9, "G parameters"), (1e6, "M parameters"), (1.0, "parameters")),
}
GREEK = ("alpha", "beta", "eta", "tau", "kappa", "epsilon", "mu", "rho", "sigma")
ROMAN = ("max", "min", "ceil", "floor", "tp", "cp", "pp", "dp", "ep", "vpp", "tol", "head", "embedding", "blocks")


class Line(NamedTuple):
    """One worked line.  ``value`` is SI where ``unit`` is a key of UNITS, else as the unit says; ``note`` is prose."""

    words: str
    value: object = None
    unit: str = ""
    equation: str = ""
    formula: str = ""
    numbers: str = ""
    name: str = ""
    note: str = ""

    @property
    def shown(self):
        """The value with its unit, for people."""
        return "" if self.value is None else amount(self.value, self.unit)


class Table(NamedTuple):
    """Rows of a table: ``columns`` are heads, ``rows`` sequences of numbers and words."""

    columns: tuple
    rows: tuple
    name: str = ""


class Section(NamedTuple):
    """A titled run of lines, tables and remarks (plain strings), in their order; ``equation`` belongs to all of it."""

    title: str
    items: tuple
    equation: str = ""


class Worksheet(NamedTuple):
    """A title and its sections."""

    title: str
    sections: tuple

    def only(self, words):
        """The sections whose titles hold one of ``words`` (all where there are none); SpecError where a word finds none."""
        if not words:
            return self
        titles = [section.title for section in self.sections]
        for word in words:
            if not any(word.lower() in title.lower() for title in titles):
                known = ", ".join(title.partition(". ")[2] or title for title in titles)
                raise SpecError(f"section: no title holds {word!r}. Titles: {known}.")
        kept = tuple(one for one in self.sections if any(word.lower() in one.title.lower() for word in words))
        return self._replace(sections=kept)

    def text(self):
        """For a terminal."""
        return "\n".join([self.title, "=" * len(self.title), *(_text(section) for section in self.sections)])

    def markdown(self):
        """For a page: every section a heading, lines as a table."""
        return "\n".join([f"# {self.title}", "", *(_markdown(section) for section in self.sections)])

    def latex(self):
        """For a paper: booktabs tables with the formulas set as mathematics."""
        head = ["% needs \\usepackage{amsmath,booktabs}", f"\\subsection*{{{latex.escape(self.title)}}}"]
        return "\n".join([*head, *(_latex(section) for section in self.sections)])

    def to_dict(self):
        """Plain values: JSON's own types, values in the line's unit (SI for seconds and bytes)."""
        return tables.plain({"title": self.title, "sections": [_plain(section) for section in self.sections]})


def amount(value, unit=""):
    """A value with its unit for people: ``4.31 ms``, ``141 GB``, ``386.3 Gb/s``, ``8,192``."""
    if isinstance(value, str):
        return value
    value = float(value)
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return ("infinite" if value > 0 else "-infinite") + (f" {unit}" if unit not in ("", "1") else "")
    for scale, word in UNITS.get(unit, ()):
        if abs(value) >= 0.9995 * scale or (scale, word) == UNITS[unit][-1]:
            return f"{number(value / scale)} {word}"
    return number(value) + (f" {unit}" if unit not in ("", "1") else "")


def number(value):
    """Four significant digits, whole numbers whole, thousands apart."""
    if isinstance(value, str):
        return value
    value = float(value)
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("infinite" if value > 0 else "-infinite")
    if value == round(value) and abs(value) < 1e7:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e7:
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        shown = f"{value:,.{min(digits, 6)}f}"
        return shown.rstrip("0").rstrip(".") if "." in shown else shown
    return f"{value:.4g}"


# -- text --------------------------------------------------------------------------------------------------------------


def _text(section):
    head = f"\n{section.title}" + (f"   [{section.equation}]" if section.equation else "")
    return "\n".join([head, "-" * (len(head) - 1), *(_text_of(item) for item in section.items)])


def _text_of(item):
    if isinstance(item, str):
        return textwrap.fill(item, WIDTH, initial_indent="  ", subsequent_indent="  ")
    if isinstance(item, Table):
        rows = [dict(zip(item.columns, [number(c) if isinstance(c, float) else c for c in row])) for row in item.rows]
        return textwrap.indent(_aligned(item.columns, rows), "  ")
    words = f"  {item.words}"
    parts = [part for part in (item.formula, item.numbers, item.shown) if part] or [""]
    tail = (f"  ({item.note})" if item.note else "") + (f"  [{item.equation}]" if item.equation else "")
    one = f"{words:<{WORDS}}{' = '.join(parts)}{tail}"
    if len(one) <= WIDTH and len(words) < WORDS:
        return one
    lines = [f"{words:<{WORDS}}{parts[0]}"] if len(words) < WORDS else [words, " " * WORDS + parts[0]]
    lines += [f"{'':<{WORDS - 2}}= {part}" for part in parts[1:]]
    return "\n".join([*lines[:-1], lines[-1] + tail])


def _aligned(columns, rows):
    cells = [[str(row[c]) for c in columns] for row in rows]
    widths = [max([len(c)] + [len(row[k]) for row in cells]) for k, c in enumerate(columns)]
    right = [
        bool(cells) and all(re.fullmatch(r"[-x+]?[\d.,e%+-]+|infinite|-", row[k]) for row in cells)
        for k in range(len(columns))
    ]
    return "\n".join(
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)).rstrip()
        for row in [list(columns), *cells]
    )


# -- Markdown ----------------------------------------------------------------------------------------------------------


def _markdown(section):
    equation = f" ({section.equation})" if section.equation else ""
    blocks, run = [f"## {section.title}{equation}", ""], []

    def flush():
        if run:
            blocks.extend(["| | formula | numbers | value | equation |", "|---|---|---|---|---|", *run, ""])
            run.clear()

    for item in section.items:
        if isinstance(item, Line):
            formula, numbers = (f"`{text}`" if text else "" for text in (item.formula, item.numbers))
            words = item.words + (f" ({item.note})" if item.note else "")
            run.append(f"| {words} | {formula} | {numbers} | {item.shown} | {item.equation} |")
            continue
        flush()
        if isinstance(item, Table):
            blocks += ["| " + " | ".join(item.columns) + " |", "|" + "---|" * len(item.columns)]
            blocks += [
                "| " + " | ".join(number(c) if isinstance(c, float) else str(c) for c in row) + " |"
                for row in item.rows
            ]
        else:
            blocks.append(item)
        blocks.append("")
    flush()
    return "\n".join(blocks)


# -- LaTeX -------------------------------------------------------------------------------------------------------------


def _latex(section):
    equation = f" ({section.equation})" if section.equation else ""
    blocks, run = [f"\\paragraph{{{latex.escape(section.title + equation)}}}"], []

    def flush():
        if run:
            blocks.extend([r"\begin{tabular}{lllr}", r"\toprule", *run, r"\bottomrule", r"\end{tabular}"])
            run.clear()

    for item in section.items:
        if isinstance(item, Line):
            numbers = latex.escape(item.numbers).replace(" x ", r" $\times$ ")
            both = " $=$ ".join(part for part in (item.formula and f"${mathematics(item.formula)}$", numbers) if part)
            words = latex.escape(item.words + (f" ({item.note})" if item.note else ""))
            run.append(f"{words} & {both} & {latex.escape(item.shown)} & {latex.escape(item.equation)} \\\\")
            continue
        flush()
        if isinstance(item, Table):
            blocks += [f"\\begin{{tabular}}{{{'l' * len(item.columns)}}}", r"\toprule"]
            blocks += [" & ".join(map(latex.escape, item.columns)) + r" \\", r"\midrule"]
            blocks += [
                " & ".join(latex.escape(number(c) if isinstance(c, float) else c) for c in row) + r" \\"
                for row in item.rows
            ]
            blocks += [r"\bottomrule", r"\end{tabular}"]
        else:
            blocks.append(latex.escape(item) + "\n")
    flush()
    return "\n".join(blocks)


def mathematics(formula):
    """The plain notation of formulas as LaTeX mathematics."""

    def word(match):
        name, _, below = match.group(0).partition("_")
        name = f"\\{name}" if name in GREEK else f"\\mathrm{{{name}}}" if name in ROMAN or len(name) > 1 else name
        return name + (f"_{{\\mathrm{{{below}}}}}" if below else "")

    text = formula.replace("%", r"\%")
    text = re.sub(r"(?<=[\d)}\w]) x (?=[\d(\w])", " * ", text)
    text = re.sub(r"[A-Za-z]+(?:_[A-Za-z0-9]+)?", word, text)
    text = re.sub(r"(\d),(\d{3})", r"\1{,}\2", text)
    return text.replace(" * ", r" \times ").replace(">=", r"\ge ").replace("<=", r"\le ")


# -- plain values ------------------------------------------------------------------------------------------------------


def _plain(section):
    lines = [{**item._asdict(), "value": item.value} for item in section.items if isinstance(item, Line)]
    found = [
        {"name": item.name, "rows": [dict(zip(item.columns, row)) for row in item.rows]}
        for item in section.items
        if isinstance(item, Table)
    ]
    remarks = [item for item in section.items if isinstance(item, str)]
    return {"title": section.title, "equation": section.equation, "lines": lines, "tables": found, "remarks": remarks}
