"""Constraint expressions: the ``where`` of configs and queries.

    tp * pp <= 16 and accelerator in ['h100', 'b200'] and not exposed_fraction > 0.02

The text is parsed to a syntax tree, every node is checked against a short list, and what is left is turned into array
operations.  Nothing is ever run as Python, so a config from a stranger can do no more than compare numbers.

Grammar: numbers, ``inf``, names, arithmetic ``+ - * / // % **``, comparisons (chained too), ``in [..]`` and ``not in``,
``and or not``, and the functions of ``FUNCTIONS``.  Quoted words stand beside categories and the labels of table axes,
and compare by ``==``, ``!=`` and ``in`` alone; inside they are codes, so that the arrays stay numbers.

One text serves NumPy and jax: an expression applies operators and, for functions, the array module of its arguments.
"""

import ast
import math
import operator
import sys
from typing import Callable, NamedTuple

import numpy as np

from .errors import ExpressionError, did_you_mean

LONGEST = 4000  # characters: far above any constraint a person writes, far below what upsets the parser

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS = {  # name: (array function, least and most arguments)
    "min": ("minimum", 2, 8),
    "max": ("maximum", 2, 8),
    "abs": ("abs", 1, 1),
    "log2": ("log2", 1, 1),
    "log10": ("log10", 1, 1),
    "sqrt": ("sqrt", 1, 1),
}


class Expression(NamedTuple):
    """A checked expression.

    ``names`` are those it reads; ``evaluate(env)`` takes name -> number or array (codes for categories) that broadcast
    against each other, and returns a boolean array of a condition, a number or array of an arithmetic expression.
    ``bounds`` are the ranges that a condition forces on single names, name -> (low, high), both included: outside them
    it is surely false.  (Zone maps skip blocks by them.)
    """

    text: str
    names: frozenset
    kind: str  # "condition" or "number"
    evaluate: Callable
    bounds: dict

    def __repr__(self):
        return f"Expression({self.text!r})"


def compile(text, names, where="", categories=None, kind="condition"):
    """Check ``text`` against the grammar and the ``names`` that may occur in it.

    ``categories`` maps a name to the tuple of its words; in ``env`` such a name holds codes, the index of the word.
    ``where`` says in errors where the text stands (a file and key, an option).  ``kind``: what is wanted,
    ``condition``, ``number`` or ``any``.  Raises ExpressionError, one line.
    """
    text = str(text).strip()
    checker = _Checker(text, frozenset(names), dict(categories or {}), f"{where}: " if where else "")
    node = checker.visit(checker.parse())
    if kind == "number":
        node = checker._as_number(node, checker.parse())
    if kind != "any" and node.kind != kind:
        wanted = {
            "condition": "is not a condition. Write a comparison such as tp <= 8.",
            "number": "is not a number. Write a name or arithmetic such as tp * pp.",
        }[kind]
        raise checker.error(f"'{text}' {wanted}")
    run = node.run

    def evaluate(env):
        with np.errstate(all="ignore"):
            return run({name: np.float64(v) if isinstance(v, (int, float)) else v for name, v in env.items()})

    return Expression(text, frozenset(checker.used), node.kind, evaluate, node.bounds)


class _Node(NamedTuple):
    """A checked piece: what it is (number, condition, word, category), how to compute it, its value if constant."""

    kind: str
    run: Callable
    value: object = None  # a constant's number or word, a category's name
    bounds: dict = {}
    name: str = ""  # set when the piece is a bare numeric name


class _Checker:
    """Turns a syntax tree into closures, one method for each kind of node that is allowed."""

    def __init__(self, text, names, categories, where):
        self.text, self.names, self.categories, self.where = text, names, categories, where
        self.used = set()

    def error(self, message):
        return ExpressionError(f"{self.where}{message}")

    def parse(self):
        if not self.text:
            raise self.error("the expression is empty. Write a comparison such as tp <= 8.")
        if len(self.text) > LONGEST:
            raise self.error(f"the expression has {len(self.text)} characters, at most {LONGEST} are read.")
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as problem:
            hint = ""
            if "=" in self.text.replace("==", "").replace("<=", "").replace(">=", "").replace("!=", ""):
                hint = " Equality is written ==."
            elif "&" in self.text or "|" in self.text:
                hint = " Write and, or, not."
            at = f" at character {problem.offset}" if problem.offset else ""
            raise self.error(f"'{self._short(self.text)}' does not read as an expression{at}.{hint}") from None
        except (ValueError, RecursionError, MemoryError):
            raise self.error(f"'{self._short(self.text)}' is nested too deeply, or holds a number too long.") from None

    def visit(self, node):
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.error(
                f"'{self._source(node)}' is not allowed. An expression has names, numbers, 'words', comparisons, "
                f"in [..], and/or/not, arithmetic and {' '.join(FUNCTIONS)}."
            )
        try:
            return method(node)
        except RecursionError:
            raise self.error(f"'{self._short(self.text)}' is nested too deeply.") from None

    # -- leaves ---------------------------------------------------------------------------------------------------------

    def _constant(self, node):
        value = node.value
        if isinstance(value, str):
            return _Node("word", None, value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"'{self._source(node)}' is not a number or a quoted word.")
        return self._number(value, node)

    def _name(self, node):
        name = node.id
        if name in self.names:
            self.used.add(name)
            if name in self.categories:
                return _Node("category", lambda env: env[name], name)
            return _Node("number", lambda env: env[name], name=name)
        if name == "inf":
            return self._number(math.inf, node)
        for owner, words in self.categories.items():
            if name in words:
                raise self.error(f"{name} is a word of {owner}: write it in quotes, {owner} == '{name}'.")
        raise self.error(f"'{name}' is not known here. {did_you_mean(name, self.names)}")

    # -- arithmetic -----------------------------------------------------------------------------------------------------

    def _binop(self, node):
        apply = _ARITHMETIC.get(type(node.op))
        if apply is None:
            bitwise = {ast.BitAnd: "and", ast.BitOr: "or"}.get(type(node.op))
            tip = f"Write {bitwise}." if bitwise else "Operators are + - * / // % **."
            raise self.error(f"'{self._source(node)}': this operator is not allowed. {tip}")
        left, right = self._numeric(node.left), self._numeric(node.right)
        return self._fold(node, apply, left, right)

    def _unaryop(self, node):
        if isinstance(node.op, ast.Not):
            part = self._condition(node.operand)
            return _Node("condition", lambda env: ~part.run(env))
        if isinstance(node.op, ast.USub):
            return self._fold(node, operator.neg, self._numeric(node.operand))
        if isinstance(node.op, ast.UAdd):
            return self._numeric(node.operand)
        raise self.error(f"'{self._source(node)}': this operator is not allowed. Write not.")

    def _call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in FUNCTIONS or node.keywords:
            raise self.error(f"'{self._source(node)}' is not allowed. Functions are {', '.join(FUNCTIONS)}.")
        function, least, most = FUNCTIONS[name]
        if not least <= len(node.args) <= most:
            count = str(least) if least == most else f"{least} to {most}"
            raise self.error(f"'{self._source(node)}': {name} takes {count} arguments.")
        parts = [self._numeric(argument) for argument in node.args]

        def apply(*values):
            call = getattr(_module(values), function)
            result = call(*values[: 1 if most == 1 else 2])
            for value in values[2:]:
                result = call(result, value)
            return result

        return self._fold(node, apply, *parts)

    # -- conditions -----------------------------------------------------------------------------------------------------

    def _boolop(self, node):
        parts = [self._condition(value) for value in node.values]
        both = isinstance(node.op, ast.And)
        join = operator.and_ if both else operator.or_

        def run(env):
            result = parts[0].run(env)
            for part in parts[1:]:
                result = join(result, part.run(env))
            return result

        return _Node("condition", run, bounds=_narrow(parts) if both else _widen(parts))

    def _compare(self, node):
        sides = [node.left, *node.comparators]
        parts = [self._one_comparison(node, sides[i], op, sides[i + 1]) for i, op in enumerate(node.ops)]
        if len(parts) == 1:
            return parts[0]

        def run(env):
            result = parts[0].run(env)
            for part in parts[1:]:
                result = result & part.run(env)
            return result

        return _Node("condition", run, bounds=_narrow(parts))

    def _one_comparison(self, node, left, op, right):
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._membership(node, left, right, isinstance(op, ast.NotIn))
        compare = _COMPARISONS.get(type(op))
        if compare is None:
            raise self.error(f"'{self._source(node)}': 'is' is not allowed. Write ==.")
        a, b = self.visit(left), self.visit(right)
        if a.kind == "word":
            a, b = b, a
        if a.kind == "category":
            if type(op) not in (ast.Eq, ast.NotEq):
                raise self.error(f"'{self._source(node)}': {a.value} has words, which have no order. Write == or in.")
            return self._coded(node, a, [b], isinstance(op, ast.NotEq))
        a, b = self._as_number(a, node), self._as_number(b, node)
        run_a, run_b = a.run, b.run
        bounds = _bounds_of(type(op), a, b)
        return _Node("condition", lambda env: _array(compare(run_a(env), run_b(env))), bounds=bounds)

    def _membership(self, node, left, right, negated):
        if not isinstance(right, (ast.List, ast.Tuple)) or not right.elts:
            raise self.error(f"'{self._source(node)}': after 'in' comes a list, such as tp in [1, 2, 4].")
        a, choices = self.visit(left), [self.visit(item) for item in right.elts]
        if a.kind == "category":
            return self._coded(node, a, choices, negated)
        a = self._as_number(a, node)
        values = [self._as_number(choice, node).value for choice in choices]
        if None in values:
            raise self.error(f"'{self._source(node)}': the list after 'in' holds numbers or quoted words only.")
        bounds = {} if negated or not a.name else {a.name: (min(values), max(values))}
        return _Node("condition", _one_of(a.run, values, negated), bounds=bounds)

    def _coded(self, node, category, choices, negated):
        """A comparison of a category with words, turned into one of codes."""
        name, words = category.value, self.categories[category.value]
        codes = []
        for choice in choices:
            if choice.kind != "word":
                raise self.error(f"'{self._source(node)}': {name} compares with a word, such as '{words[0]}'.")
            if choice.value not in words:
                raise self.error(f"'{choice.value}' is not a word of {name}. {did_you_mean(choice.value, words)}")
            codes.append(words.index(choice.value))
        bounds = {} if negated else {name: (min(codes), max(codes))}
        return _Node("condition", _one_of(category.run, codes, negated), bounds=bounds)

    # -- helpers --------------------------------------------------------------------------------------------------------

    def _condition(self, node):
        part = self.visit(node)
        if part.kind != "condition":
            raise self.error(f"'{self._source(node)}' is not a condition. Write a comparison such as tp > 1.")
        return part

    def _numeric(self, node):
        return self._as_number(self.visit(node), node)

    def _as_number(self, part, node):
        if part.kind == "number":
            return part
        if part.kind == "category":
            words = self.categories[part.value]
            raise self.error(f"'{self._source(node)}': {part.value} has words, compare it with one, such as '{words[0]}'.")
        what = f"the word '{part.value}'" if part.kind == "word" else "a condition"
        raise self.error(f"'{self._source(node)}': {what} stands where a number belongs.")

    def _number(self, value, node):
        try:
            value = float(value)
        except OverflowError:
            raise self.error(f"'{self._short(self._source(node))}' is too large a number.") from None
        return _Node("number", lambda env: value, value)

    def _fold(self, node, apply, *parts):
        """The node of a function of numbers, computed now if all of them are constant."""
        if all(part.value is not None for part in parts):
            try:
                value = apply(*(part.value for part in parts))
            except (ArithmeticError, ValueError):
                value = None
            if value is None or isinstance(value, complex):
                raise self.error(f"'{self._source(node)}' has no value.")
            return self._number(value, node)
        runs = [part.run for part in parts]
        return _Node("number", lambda env: apply(*(run(env) for run in runs)))

    def _source(self, node):
        return self._short(ast.get_source_segment(self.text, node) or self.text)

    @staticmethod
    def _short(text):
        text = " ".join(text.split())
        return text if len(text) <= 80 else text[:77] + "..."


def _module(values):
    """The array module of the arguments: jax.numpy if one of them is a jax array (then jax is loaded), else NumPy."""
    if any(type(value).__module__.split(".")[0] in ("jax", "jaxlib") for value in values):
        return sys.modules["jax.numpy"]
    return np


def _array(value):
    """Python's True and False as NumPy's, on which ``~`` means not."""
    return np.bool_(value) if isinstance(value, bool) else value


def _one_of(run, values, negated):
    def test(env):
        tested = run(env)
        result = _array(tested == values[0])
        for value in values[1:]:
            result = result | (tested == value)
        return ~result if negated else result

    return test


def _bounds_of(op, a, b):
    """The range that ``a op b`` leaves to a name, when the other side is a constant."""
    if b.name and a.value is not None:
        a, b = b, a
        op = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}.get(op, op)
    if not a.name or b.value is None:
        return {}
    value = b.value
    return {
        ast.Lt: {a.name: (-math.inf, value)},
        ast.LtE: {a.name: (-math.inf, value)},
        ast.Gt: {a.name: (value, math.inf)},
        ast.GtE: {a.name: (value, math.inf)},
        ast.Eq: {a.name: (value, value)},
    }.get(op, {})


def _narrow(parts):
    """Bounds of all parts together: each name's ranges intersect."""
    result = {}
    for part in parts:
        for name, (low, high) in part.bounds.items():
            old = result.get(name, (-math.inf, math.inf))
            result[name] = (max(low, old[0]), min(high, old[1]))
    return result


def _widen(parts):
    """Bounds of any part: only names bounded in every part, each over the hull of its ranges."""
    shared = set.intersection(*(set(part.bounds) for part in parts))
    return {
        name: (min(part.bounds[name][0] for part in parts), max(part.bounds[name][1] for part in parts))
        for name in shared
    }
