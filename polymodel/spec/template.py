"""Jinja templates, confined: no attributes of Python, bounded work and bounded output.

A template fetches other files only through functions that an importer hands in (`includes.py`). Every line
of the output remembers which line of the file it came from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, wraps
from types import CodeType
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from polymodel.errors import Diagnostic
from polymodel.frozen import dataclass
from polymodel.governor import tick
from polymodel.spec.faults import Source, shown, suggestion
from polymodel.spec.files import RefusedVariable, Rendered, Variable
from polymodel.spec.numbers import LARGEST

MAX_OUTPUT = 2_000_000
MAX_WORK = 2_000_000
_OPEN, _CLOSE = "\ue000", "\ue001"
_PRIVATE = re.compile("[\ue000-\ue003]")  # marks of lines, and of values of other files (`yaml_text.py`)
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_FILTERS = (
    "abs", "capitalize", "d", "default", "first", "float", "indent", "int", "items", "join", "last", "length",
    "count", "list", "lower", "max", "min", "reverse", "round", "sort", "string", "sum", "title", "trim",
    "unique", "upper",
)  # fmt: skip
# Functions of other tools' templates, which `includes.py` has.
_IMPORTED = ("include", "include_text", "include_all", "add_to_path", "find_path", "path_exists", "cwd")
_METHODS = {
    dict: ("get", "items", "keys", "values"),
    str: ("endswith", "lower", "split", "startswith", "strip", "upper"),
    list: ("count", "index"),
    tuple: ("count", "index"),
}
_RULES = ("among", "least", "most", "multiple_of", "about")
_REFUSED = {
    "Include": "include", "Import": "import", "FromImport": "from ... import", "Extends": "extends",
    "Block": "block", "CallBlock": "call", "FilterBlock": "filter", "AssignBlock": "set ... endset",
}  # fmt: skip


def shares(total: int, parts: int, skew: float, most: int) -> list[int]:
    """`total` in whole parts, the i-th in proportion to 1 / i ** skew (Zipf's law; 0: alike), none above
    `most`: what a full part cannot take the others share in the same way. What is left over when parts are
    rounded down goes to those that lose most."""
    weights = [(i + 1.0) ** -skew for i in range(parts)]
    full = 0  # parts that are full: the first ones, which have the largest weights
    while full < parts and (total - full * most) * weights[full] > most * sum(weights[full:]):
        full += 1
    left, rest = max(total - full * most, 0), sum(weights[full:])
    exact = [left * w / rest for w in weights[full:]]
    result = [min(int(x), most) for x in exact]
    order = sorted(range(len(exact)), key=lambda i: (result[i] >= most, result[i] - exact[i], i))
    for i in order[: max(left - sum(result), 0)]:
        result[i] = min(result[i] + 1, most)
    return [most] * full + result


def routing(
    tokens: int, active: int, experts: int, loads: Sequence[int], skew: float, capacity: float
) -> dict[str, object]:
    """How `tokens` that have `active` experts each fill the experts of a layer.

    Pairs of a token and one of its experts go to experts as `loads` has them or, without, in proportion to
    1 / i ** skew; an expert takes `capacity` times its equal share at most (0: all), and drops what is above
    (Fedus et al., Switch Transformers, JMLR 2022, section 2.2). Gives the `loads` that are taken, their sum
    `taken`, the number of `experts` that are used and the `places` that each has: as its capacity says, or
    as the fullest one needs. Where nothing says how pairs are spread they are spread evenly, over as many
    experts as there can be, and `loads` is empty.
    """
    pairs = tokens * active
    if not loads and not skew and not capacity:
        used = next((n for n in range(experts, 0, -1) if pairs % n == 0), 1)
        return {"loads": [], "taken": pairs, "experts": used, "places": pairs // used}
    loads = loads or (shares(pairs, experts, skew, tokens) if experts else [])
    whole = all(type(n) is int and 0 <= n <= tokens for n in loads)
    if not experts or len(loads) != experts or not whole or sum(loads) != pairs:
        what = f"LOADS are {experts} whole numbers of at most {tokens} tokens, {pairs} in all"
        if not experts:
            what = "LOADS, SKEW and CAPACITY are of models with experts"
        remedy = "give other values: --var LOADS=..., --var SKEW=..., --var CAPACITY=..."
        raise TemplateStopped(what, remedy, code="assertion-failed", variable="LOADS")
    most = math.ceil(capacity * pairs / experts) if capacity else tokens
    held = [min(n, most) for n in loads]
    return {"loads": held, "taken": sum(held), "experts": experts, "places": most if capacity else max(held)}


Functions = Mapping[str, Callable[..., object]]


class _TooMuch(SecurityError):
    """A template requires more work, output or size than is allowed."""


class TemplateStopped(TemplateError):
    """An error that stops a template and has its own message: a failed `assert`, or the faults of another
    file. `variable`: the one that the message concerns."""

    def __init__(
        self,
        message: str,
        remedy: str,
        told: tuple[Diagnostic, ...] = (),
        code: str = "syntax-error",
        variable: str = "",
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.told = told
        self.code = code
        self.variable = variable


@dataclass
class Budget:
    """The work done so far, in characters and values read."""

    work: int = 0

    def spend(self, amount: int) -> None:
        """Note some more. Raises where it is too much."""
        self.work += amount
        tick("rendering a template", amount)
        if self.work > MAX_WORK:
            raise _TooMuch("the template does too much work")


class FileValue:
    """A value of another file; printed, it is a mark that the YAML reader replaces (`yaml_text.Parts`)."""

    __slots__ = ("_mark",)

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __getitem__(self, key: object) -> FileValue:
        return FileValue(f"{self._mark}.{key}")

    def __str__(self) -> str:
        return self._mark


class _Assert(Extension):
    """`{% assert CONDITION, "message" %}`."""

    tags = {"assert"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        condition = parser.parse_expression()
        message: nodes.Expr = nodes.Const("an assertion does not hold")
        if parser.stream.skip_if("comma"):
            message = parser.parse_expression()
        held = nodes.Filter(condition, "bounded_assert", [message], [], None, None, lineno=line)
        return nodes.ExprStmt(held, lineno=line)


class _Variable(Extension):
    """`{% variable NAME = default, least=1, about="what it is" %}`: NAME gets its value, checked."""

    tags = {"variable"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        target = parser.parse_assign_target(name_only=True)
        parser.stream.expect("assign")
        default = parser.parse_expression()
        rules = []
        while parser.stream.skip_if("comma"):
            key = parser.stream.expect("name").value
            if key not in _RULES:
                parser.fail(f"`{key}` is not a rule of a variable; there are {', '.join(_RULES)}", line)
            parser.stream.expect("assign")
            rules.append(nodes.Keyword(key, parser.parse_expression()))
        given = nodes.Name(target.name, "load", lineno=line)
        place = [nodes.Const(target.name), nodes.Const(line), default]
        value = nodes.Filter(given, "bounded_variable", place, rules, None, None, lineno=line)
        return nodes.Assign(target, value, lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with a work budget; one environment renders one template.

    Whatever walks a value (printing, comparing, hashing, a filter) first spends its size, so that
    values which share their parts many times over cannot be unfolded.
    """

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, budget: Budget, functions: Functions) -> None:
        super().__init__(
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            finalize=self.weighed,
            extensions=[_Assert, _Variable],
        )
        self.declared: dict[str, tuple[Variable, int]] = {}  # and their lines
        self.budget = budget
        self.call_weight = 1
        own = {"range": self._range, "namespace": jinja2.utils.Namespace, "routing": self._routing}
        self.globals = {**own, **functions}
        self.filters = {name: self._spending(self.filters[name]) for name in _FILTERS}
        self.filters |= {"bounded_loop": self._loop, "bounded_value": self.weighed, "sum": self._sum}
        self.filters |= {"bounded_slice": self._slice, "bounded_assert": self._assert}
        self.filters["bounded_variable"] = self._variable
        self.filters |= {"bounded_concat": self._join, "join": self._join, "round": self._round}
        self.filters["indent"] = self._indent

    def spend(self, amount: int) -> None:
        self.budget.spend(amount)

    def weighed(self, value: object) -> object:
        """The value, after its size has been spent."""
        open_values = [value]
        while open_values:
            found = open_values.pop()
            self.spend(1)
            if isinstance(found, (str, range)):
                self.spend(len(found))
            elif isinstance(found, (list, tuple, set, frozenset)):
                self.spend(len(found))
                open_values.extend(found)
            elif isinstance(found, dict):
                self.spend(2 * len(found))
                open_values.extend([*found.keys(), *found.values()])
            elif isinstance(found, int) and abs(found) >= LARGEST:
                raise _TooMuch("a number in the template is too large")
        return value

    def _spending(self, function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def spending(*args: object, **kwargs: object) -> object:
            for value in (*args, *kwargs.values()):
                self.weighed(value)
            return function(*args, **kwargs)

        return spending

    def _indent(self, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        each = len(width) if isinstance(width, str) else width
        self.spend(len(text) + (text.count("\n") + 1) * max(each, 1))
        return jinja2.filters.do_indent(text, width, first, blank)

    def _range(self, *bounds: int) -> range:
        result = range(*bounds)
        if len(result) > MAX_WORK:
            raise _TooMuch(f"range of {len(result)} values in the template is too long")
        return result

    def _routing(
        self, tokens: int, active: int, experts: int, loads: Sequence[int], skew: float, capacity: float
    ) -> dict[str, object]:
        self.spend(8 * experts)
        return routing(tokens, active, experts, loads, skew, capacity)

    def _loop(self, values: Iterable[object], weight: int) -> Iterator[object]:
        for value in values:
            self.spend(weight)
            yield value

    def _slice(self, part: object) -> object:
        """Charge a slice for the values that it copies."""
        if isinstance(part, (str, list, tuple)):
            self.spend(len(part))
        return part

    def _assert(self, holds: object, message: object) -> None:
        if holds:
            return
        text = str(self.weighed(message))[:400]
        named = [name for name in self.declared if re.search(rf"\b{name}\b", text)]
        others = ", ".join(f"--var {name}=..." for name in named)
        remedy = f"give other values: {others}" if named else "give the template other variables"
        raise TemplateStopped(text, remedy, code="assertion-failed", variable=named[0] if named else "")

    def _variable(
        self,
        given: object,
        name: str,
        line: int,
        default: object,
        among: Sequence[object] = (),
        least: int | None = None,
        most: int | None = None,
        multiple_of: int | None = None,
        about: str = "",
    ) -> object:
        value = default if isinstance(given, jinja2.Undefined) else given
        self.weighed([value, default, among, least, most, multiple_of])
        declared = Variable(name, value, default, str(about), tuple(among), least, most, multiple_of)
        self.declared[name] = declared, line
        # All faults are reported at the end; until then the default is used.
        return default if declared.fault() else value

    def _join(self, values: Iterable[object], d: str = "") -> str:
        parts: list[str] = []
        for value in values:
            parts.append(str(self.weighed(value)))
            self.spend(len(d) + 1)
        return str(d).join(parts)

    def _sum(self, values: Iterable[object]) -> float:
        total: float = 0
        for value in values:
            self.spend(1)
            if not isinstance(value, (int, float)):
                raise _TooMuch("sum adds numbers only")
            total += value
        return total

    def _round(self, value: float, precision: int = 0) -> float:
        if not isinstance(value, (int, float)) or not -60 <= precision <= 60:
            raise _TooMuch("round takes a number and at most 60 digits")
        return round(value, precision)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.spend(1)
        if operator == "**":
            numbers = all(isinstance(v, (int, float)) for v in (left, right))
            if not numbers or abs(right) > 200 or abs(left) > 10**30:
                raise _TooMuch("a power in the template is too large")
        elif operator == "%" and isinstance(left, str):
            raise _TooMuch("`%` formats text; only numbers may stand there")
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, (str, list, tuple)) and isinstance(times, int):
                    self.spend(len(text) * max(times, 0))
        elif isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            self.spend(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and abs(result) >= LARGEST:
            raise _TooMuch("a number in the template is too large")
        return result

    def unsafe_undefined(self, obj: object, attribute: str) -> jinja2.Undefined:
        return self.undefined(f"{attribute} is not available in templates", name=attribute, exc=SecurityError)

    def wrap_str_format(self, value: Any) -> None:
        """Leave `format` as it is: jinja2 would wrap it in a function that `call` does not recognise."""

    def call(self, context: Any, obj: Any, /, *args: object, **kwargs: object) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, (int, float)):
            raise _TooMuch("numbers have no methods in templates")
        allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), None)
        if allowed is not None and getattr(obj, "__name__", "") not in allowed:
            raise _TooMuch(f"{obj.__name__}() is not available in templates")
        if isinstance(owner, (str, list, tuple)):
            self.spend(len(owner))
        for value in (*args, *kwargs.values()):
            self.weighed(value)
        self.spend(self.call_weight + 10)
        return super().call(context, obj, *args, **kwargs)


def _bounded(node: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, "bounded_value", [], [], None, None, lineno=node.lineno)


class _Bounding(NodeTransformer):
    """Wraps loops, concatenations and comparisons in filters that count; refuses what reads files."""

    def __init__(self) -> None:
        self.macro_data = 1

    def generic_visit(self, node: Any, *args: object, **kwargs: object) -> Any:
        name = type(node).__name__
        if name in _REFUSED:
            raise TemplateSyntaxError(f"`{_REFUSED[name]}` is not available in templates", node.lineno)
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not available in templates", node.lineno)
        weight = 1 + sum(len(d.data) for d in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = nodes.Filter(
            node.iter, "bounded_loop", [nodes.Const(weight)], [], None, None, lineno=node.lineno
        )
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        self.macro_data += 1 + sum(len(d.data) for d in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        listed = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(listed, "bounded_concat", [], [], None, None, lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = _bounded(node.expr)
        for operand in node.ops:
            operand.expr = _bounded(operand.expr)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Test:
        self.generic_visit(node)
        node.args = [_bounded(a) for a in node.args]
        if node.args:
            node.node = _bounded(node.node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return nodes.Filter(node, "bounded_slice", [], [], None, None, lineno=node.lineno)
        node.arg = _bounded(node.arg)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        self.generic_visit(node)
        node.key = _bounded(node.key)
        return node


def render(
    text: str,
    plain: Source,
    variables: Mapping[str, object],
    functions: Functions | None = None,
    budget: Budget | None = None,
) -> tuple[Rendered | None, tuple[Diagnostic, ...]]:
    """Render the text of the file `plain`. On any fault the first item is None.

    `functions`: additional functions that the template may call; `budget`: shared by templates that fetch
    each other.
    """
    if _PRIVATE.search(text):
        what, remedy = "the template contains private-use characters", "remove U+E000 to U+E003"
        return None, (Diagnostic(what, remedy, "", plain.place(1, 1), code="syntax-error"),)
    environment = _Environment(budget or Budget(), functions or {})
    output, known, faults = _output(environment, text, plain, variables)
    refused = tuple(_refusal(v, plain, line) for v, line in environment.declared.values() if v.fault())
    if refused or faults:  # what follows from a wrong value is no fault of its own
        return None, refused or faults
    declared = tuple(variable for variable, _ in environment.declared.values())
    return replace(_unmarked(output, plain, known), declared=declared), ()


def names_in(text: str) -> frozenset[str] | None:
    """The variables that a template reads, whatever their values; None if it cannot be parsed."""
    try:
        return frozenset(meta.find_undeclared_variables(_Environment(Budget(), {}).parse(text)))
    except (TemplateError, SyntaxError, NameError, RecursionError):
        return None


@lru_cache(maxsize=4)
def _compiled(text: str) -> tuple[CodeType, frozenset[str], int]:
    """The code of a template, the variables that it reads, and the weight of a call of its macros. Remembered
    for a few texts, since a file is printed once more for each of its variables."""
    environment = _Environment(Budget(), {})
    tree = environment.parse(_marked(environment, text))
    known = frozenset(meta.find_undeclared_variables(tree))
    bounding = _Bounding()
    bounding.visit(tree)
    return environment.compile(tree, filename="<template>"), known, bounding.macro_data


def _output(
    environment: _Environment, text: str, plain: Source, variables: Mapping[str, object]
) -> tuple[str, frozenset[str], tuple[Diagnostic, ...]]:
    """Return the output of a template, with marks of lines, and the variables that it reads; or its fault."""
    error: Exception
    try:
        code, known, environment.call_weight = _compiled(text)
        template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        return _collected(environment, template, variables), known, ()
    except TemplateError as found:
        told = found.told if isinstance(found, TemplateStopped) else ()
        return "", frozenset(), told or (_fault(found, plain, [*variables]),)
    except RecursionError as found:
        error = _TooMuch("macros call each other without end").with_traceback(found.__traceback__)
    except SyntaxError:  # digits of other scripts, which jinja2 takes for a number
        error = TemplateSyntaxError("a number is made of the digits 0 to 9", 0)
    except NameError as found:  # jinja2 folds constants into code, where an endless one is not a literal
        error = _TooMuch("a number in the template is too large").with_traceback(found.__traceback__)
    except (TypeError, ValueError, ArithmeticError, MemoryError, LookupError, AttributeError) as found:
        error = found
    return "", frozenset(), (_fault(error, plain, []),)


def _refusal(variable: Variable, plain: Source, line: int) -> RefusedVariable:
    """The fault of a value that its declaration does not allow."""
    name, value = variable.name, variable.value
    default = " (unless given)" if value == variable.default else ""
    what = f"template variable {name} = {shown(value)}{default} is not {variable.allowed()}"
    near = suggestion(str(value), map(str, variable.among)) if variable.among else ""
    remedy = (
        near
        if near.startswith("did you mean")
        else f"give another one: --var {name}=..., load(..., {name}=...)"
    )
    if variable.about:
        remedy = f"{remedy} ({name}: {variable.about})"
    text = plain.lines[line - 1]
    column = text.find(name, text.find("variable")) + 1
    place = plain.place(line, max(column, 1))
    return RefusedVariable(what, remedy, f"variables.{name}", place, code=variable.fault(), name=name)


def _marked(environment: _Environment, text: str) -> str:
    """The template with the line number written at the end of every line of literal text."""
    parts: list[str] = []
    for line, kind, value in environment.lex(text):
        if kind == "data":
            pieces = value.split("\n")
            value = "\n".join(
                p + (f"{_OPEN}{line + i}{_CLOSE}" if i + 1 < len(pieces) else "")
                for i, p in enumerate(pieces)
            )
        parts.append(value)
    return "".join(parts)


def _collected(environment: _Environment, template: jinja2.Template, variables: Mapping[str, object]) -> str:
    parts: list[str] = []
    size = 0
    for part in template.generate(dict(variables)):
        size += len(part)
        if size > MAX_OUTPUT:
            raise _TooMuch("the template writes too much text")
        parts.append(part)
    return "".join(parts)


def _unmarked(output: str, plain: Source, known: frozenset[str]) -> Rendered:
    cleaned: list[str] = []
    origin: list[int] = []
    last = 0
    for raw in output.split("\n"):
        marks = _MARK.findall(raw)
        last = int(marks[-1]) if marks else min(last + 1, len(plain.lines))
        cleaned.append(_MARK.sub("", raw))
        origin.append(last)
    source = Source(plain.file, tuple(cleaned), plain.lines, tuple(origin), plain.folder)
    return Rendered("\n".join(cleaned), source, known)


def _fault(error: Exception, source: Source, variables: list[str]) -> Diagnostic:
    line = getattr(error, "lineno", None) or _line_of(error)
    text = source.lines[line - 1] if 0 < line <= len(source.lines) else ""
    written = error.message if isinstance(error, TemplateError) and error.message else str(error)
    message = _MARK.sub("", written) or type(error).__name__
    remedy, code, path = "mend the expression; templates compute numbers, texts and lists", "syntax-error", ""
    if isinstance(error, UndefinedError):
        name = re.match(r"'(\w+)' is undefined", message)
        remedy = "give it a value, e.g. load(..., N=8) or --var N=8, or write {{ N | default(8) }}"
        if name:
            near = suggestion(name.group(1), variables) if variables else ""
            given = near if near.startswith("did you mean") else ""
            remedy = given or remedy.replace("N", name.group(1))
            if name.group(1) in _IMPORTED:
                remedy = "a file that includes others is imported: polymodel import accelforge (or timeloop)"
    elif isinstance(error, TemplateStopped):
        remedy, code = error.remedy, error.code
        path = f"variables.{error.variable}" if error.variable else ""
    elif isinstance(error, SecurityError):
        remedy = "templates may compute small values only: no Python attributes, no huge loops or powers"
    elif isinstance(error, TemplateSyntaxError) and message.startswith("No filter"):
        remedy = "filters: " + ", ".join(_FILTERS)
    elif isinstance(error, TemplateSyntaxError):
        remedy = "templates know {{ value }}, set, if, for, with and macro"
    column = len(text) - len(text.lstrip()) + 1
    spot = re.search(r"\{[{%#]", text)
    if spot:
        column = spot.start() + 1
    return Diagnostic(f"template: {message}", remedy, path, source.place(line, column), code=code)


def _line_of(error: BaseException) -> int:
    """The template line in which a rendering error arose: jinja rewrites tracebacks to it."""
    result = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            result = trace.tb_lineno
        trace = trace.tb_next
    return result or 1
