"""Jinja templates, confined: no files, no attributes of Python, bounded work and bounded output.

Every line of the output remembers which line of the file it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from polymodel.errors import Diagnostic
from polymodel.spec.faults import suggestion
from polymodel.spec.source import Source

MAX_OUTPUT = 4_000_000
MAX_WORK = 4_000_000
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_FILTERS = (
    "abs", "capitalize", "d", "default", "first", "float", "int", "items", "join", "last", "length", "count",
    "list", "lower", "max", "min", "reverse", "round", "sort", "string", "sum", "title", "trim", "unique", "upper",
)  # fmt: skip
_METHODS = {
    dict: ("get", "items", "keys", "values"),
    str: ("endswith", "lower", "split", "startswith", "strip", "upper"),
    list: ("count", "index"),
    tuple: ("count", "index"),
}
_REFUSED = {
    "Include": "include", "Import": "import", "FromImport": "from ... import", "Extends": "extends",
    "Block": "block", "CallBlock": "call", "FilterBlock": "filter", "AssignBlock": "set ... endset",
}  # fmt: skip


class _TooMuch(SecurityError):
    """A template asked for more work, output or size than is allowed."""


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with a work budget; one environment renders one template."""

    intercepted_binops = frozenset(("**", "*", "+", "%"))

    def __init__(self) -> None:
        super().__init__(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, finalize=self._written)
        self.work = 0
        self.call_weight = 1
        self.globals = {"range": self._range, "namespace": jinja2.utils.Namespace}
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters["bounded_loop"] = self._loop
        self.filters["bounded_concat"] = self._concat
        self.filters["join"] = self._join

    def spend(self, amount: int) -> None:
        self.work += amount
        if self.work > MAX_WORK:
            raise _TooMuch("the template does too much work")

    def _written(self, value: object) -> object:
        self._sized(value)
        text = str(value)
        self.spend(len(text))
        return value

    def _sized(self, value: object) -> object:
        if isinstance(value, int) and abs(value) >= 10**60:
            raise _TooMuch("a number in the template is too large")
        if isinstance(value, (str, list, tuple, dict)) and len(value) > MAX_OUTPUT:
            raise _TooMuch("a value in the template is too large")
        return value

    def _range(self, *bounds: int) -> range:
        found = range(*bounds)
        if len(found) > MAX_WORK:
            raise _TooMuch(f"range of {len(found)} values in the template is too long")
        return found

    def _loop(self, values: Iterable[object], weight: int) -> Iterator[object]:
        for value in values:
            self.spend(weight)
            yield value

    def _concat(self, values: Iterable[object]) -> str:
        return self._join(values, "")

    def _join(self, values: Iterable[object], d: str = "") -> str:
        parts: list[str] = []
        for value in values:
            parts.append(str(value))
            self.spend(len(parts[-1]) + len(d) + 1)
        return str(d).join(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.spend(1)
        if operator == "**":
            if not all(isinstance(v, (int, float)) for v in (left, right)) or abs(right) > 200 or abs(left) > 10**30:
                raise _TooMuch("a power in the template is too large")
        elif operator == "%" and isinstance(left, str):
            raise _TooMuch("`%` formats text; only numbers may stand there")
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, (str, list, tuple)):
                    self.spend(len(text) * max(int(times), 0))
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, (str, list, tuple)):
            self.spend(len(found))
        return self._sized(found)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), None)
        if allowed is not None and getattr(obj, "__name__", "") not in allowed:
            raise _TooMuch(f"{obj.__name__}() is not available in templates")
        if isinstance(owner, str):
            self.spend(len(owner))
        self.spend(self.call_weight)
        return super().call(context, obj, *args, **kwargs)


class _Bounding(NodeTransformer):
    """Wraps every loop and text concatenation in a filter that counts; refuses what reads files."""

    def __init__(self) -> None:
        self.macro_data = 1

    def generic_visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
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


@dataclass(frozen=True)
class Rendered:
    """The text to parse, its source, and the template variables that the file knows."""

    text: str
    source: Source
    variables: frozenset[str]


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def render(
    text: str, file: str, variables: Mapping[str, object], folder: str = ""
) -> tuple[Rendered | None, tuple[Diagnostic, ...]]:
    """Render one file. On any fault the first item is None."""
    lines = tuple(text.split("\n"))
    plain = Source(file, lines, folder=folder)
    if not is_template(text):
        return Rendered(text, plain, frozenset()), ()
    if _OPEN in text or _CLOSE in text:
        where = plain.place(1, 1)
        return None, (Diagnostic("the template contains private-use characters", "remove U+E000 and U+E001", "", where),)
    environment = _Environment()
    try:
        tree = environment.parse(_marked(environment, text))
        known = frozenset(meta.find_undeclared_variables(tree))
        bounding = _Bounding()
        bounding.visit(tree)
        environment.call_weight = bounding.macro_data
        code = environment.compile(tree, filename="<template>")
        template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        output = _collected(environment, template, variables)
    except TemplateError as error:
        known_names = [*variables]
        return None, (_fault(error, plain, known_names),)
    except (TypeError, ValueError, ArithmeticError, RecursionError, MemoryError, LookupError) as error:
        return None, (_fault(error, plain, []),)
    return _unmarked(output, file, lines, folder, known), ()


def _marked(environment: _Environment, text: str) -> str:
    """The template with the line number written at the end of every line of literal text."""
    parts: list[str] = []
    for line, kind, value in environment.lex(text):
        if kind == "data":
            pieces = value.split("\n")
            value = "\n".join(
                p + (f"{_OPEN}{line + i}{_CLOSE}" if i + 1 < len(pieces) else "") for i, p in enumerate(pieces)
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


def _unmarked(output: str, file: str, lines: tuple[str, ...], folder: str, known: frozenset[str]) -> Rendered:
    cleaned: list[str] = []
    origin: list[int] = []
    last = 0
    for raw in output.split("\n"):
        marks = _MARK.findall(raw)
        last = int(marks[-1]) if marks else min(last + 1, len(lines))
        cleaned.append(_MARK.sub("", raw))
        origin.append(last)
    source = Source(file, tuple(cleaned), lines, tuple(origin), folder)
    return Rendered("\n".join(cleaned), source, known)


def _fault(error: Exception, source: Source, variables: list[str]) -> Diagnostic:
    line = getattr(error, "lineno", None) or _line_of(error)
    text = source.lines[line - 1] if 0 < line <= len(source.lines) else ""
    message = _MARK.sub("", str(error)) or type(error).__name__
    remedy = "see the Jinja reference for the syntax"
    if isinstance(error, UndefinedError):
        name = re.match(r"'(\w+)' is undefined", message)
        remedy = "give it a value, e.g. load(..., N=8) or --var N=8, or write {{ N | default(8) }}"
        if name:
            near = suggestion(name.group(1), variables) if variables else ""
            given = near if near.startswith("did you mean") else ""
            remedy = given or remedy.replace("N", name.group(1))
    elif isinstance(error, SecurityError):
        remedy = "templates may compute small values only: no Python attributes, no huge loops or powers"
    elif isinstance(error, TemplateSyntaxError):
        remedy = "templates know {{ value }}, set, if, for, with and macro"
    column = len(text) - len(text.lstrip()) + 1
    spot = re.search(r"\{[{%#]", text)
    if spot:
        column = spot.start() + 1
    return Diagnostic(f"template: {message}", remedy, "", source.place(line, column), "template")


def _line_of(error: BaseException) -> int:
    """The template line in which a rendering error arose: jinja rewrites tracebacks to it."""
    found = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            found = trace.tb_lineno
        trace = trace.tb_next
    return found or 1
