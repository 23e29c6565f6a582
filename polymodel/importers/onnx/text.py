"""Write the cascade as YAML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from polymodel.arithmetic import Affine
from polymodel.importers.imported import only_counted
from polymodel.importers.onnx.graph import blocks_of
from polymodel.importers.onnx.lower import AccessIndices, Lowered, Variables, limits_of
from polymodel.importers.onnx.views import substituted

WIDTH = 118


@dataclass(frozen=True)
class WorkloadHeader:
    """The content of the head of the workload."""

    name: str
    source: str
    remarks: tuple[str, ...] = ()


def yaml_of(
    einsums: Sequence[Lowered],
    variables: Variables,
    tensors: Mapping[str, str],
    bits: Mapping[str, int],
    weights: Collection[str],
    header: WorkloadHeader,
) -> str:
    """Return the workload. `tensors`: names in the file -> names in the workload. `bits`: bits per value of
    each."""
    ranks = RankNames(variables)
    called = distinct([e.name for e in einsums])
    used = list(dict.fromkeys(line.tensor for e in einsums for line in e.lines))
    ((common, _),) = Counter(bits[t] for t in used).most_common(1)
    written: set[str] = set()
    body: list[str] = []
    operations: list[dict[str, str]] = []
    blocks = blocks_of([e.scope for e in einsums])
    for e, own_name, block in zip(einsums, called, blocks, strict=True):
        names = ranks.variables(e)
        body += [f"  # {plain('; '.join(e.about))}", f"  - name: {own_name}"]
        if block:
            body.append(f'    block: "{_quotable(block)}"')
        if e.copy:
            body.append("    is_copy_operation: true")
        body.append("    tensor_accesses:")
        for line in e.lines:
            own = (
                ""
                if bits[line.tensor] == common or line.tensor in written
                else f", bits_per_value: {bits[line.tensor]}"
            )
            # A name that differs from the file's own is written next to it once.
            same = line.tensor in written or tensors[line.tensor] == line.tensor
            aside = "" if same else f"  # {plain(line.tensor)}"
            written.add(line.tensor)
            projection = _projection(line, ranks, names)
            out = ", output: true" if line is e.output else ""
            body.append(f"    - {{name: {tensors[line.tensor]}, projection: {projection}{out}{own}}}{aside}")
        limits = limits_of(variables, e, names)
        if limits:
            body.append("    iteration_space_shape: [" + ", ".join(f'"{text}"' for text in limits) + "]")
        done = _operations(e, names)
        body += (
            ["    operations: {" + ", ".join(f"{k}: {_shown(v)}" for k, v in done.items()) + "}"]
            if done
            else []
        )
        operations.append(done)
        body.append(f"    renames: {_renames(e, tensors, weights)}")
    head = ["# yaml-language-server: $schema=./polymodel.schema.json"]
    head += [f"# {plain(text)}" for text in header.remarks]
    sizes = {name: ranks.sizes[name] for name in dict.fromkeys(r for t in used for r in ranks.ranks[t])}
    head += ["schema_version: 1", "workload:", f"  name: {header.name}", *_sizes(sizes)]
    head += [f"  bits_per_value: {{All: {common}}}"]
    counted = only_counted(operations)
    head += [f"  operators: {{{', '.join(f'{_shown(w)}: {{}}' for w in counted)}}}"] if counted else []
    head += ["  einsums:"]
    return "\n".join([*head, *body]) + "\n"


def _sizes(sizes: Mapping[str, int]) -> list[str]:
    lines, row = [], ""
    for name, size in sizes.items():
        entry = f"{name}: {size}"
        if row and len(row) + len(entry) + 6 > WIDTH:
            lines.append(row + ",")
            row = ""
        row = f"{row}, {entry}" if row else f"    {entry}"
    return ["  rank_sizes: {", *lines, row, "  }"] if lines else [f"  rank_sizes: {{{row.strip()}}}"]


def _projection(line: AccessIndices, ranks: RankNames, names: Mapping[str, str]) -> str:
    table = {v: Affine.variable(n) for v, n in names.items()}
    result = [
        (r, str(substituted(x, table))) for r, x in zip(ranks.ranks[line.tensor], line.exprs, strict=True)
    ]
    if all(text.upper() == rank and text.islower() for rank, text in result):
        return "[" + ", ".join(text for _, text in result) + "]"
    return "{" + ", ".join(f"{rank}: {text}" for rank, text in result) + "}"


def _shown(text: str) -> str:
    return text if text.isidentifier() and text not in ("true", "false", "null", "y", "n") else f'"{text}"'


def _operations(e: Lowered, names: Mapping[str, str]) -> dict[str, str]:
    word = e.map
    if e.over:
        word = f"{e.map}(_0, {', '.join(names[v] for v in e.over)})"
    found = {"map": word, "reduce": e.reduce if e.reduce != "add" else "", "populate": "; ".join(e.populate)}
    return {k: v for k, v in found.items() if v}


def _renames(e: Lowered, tensors: Mapping[str, str], weights: Collection[str]) -> str:
    """Return the roles of the tensors. Computed operands are inputs; for a product that sums over a variable,
    only the first one is, since the second takes the position of the weights in an array."""
    inputs = list(dict.fromkeys(line.tensor for line in e.inputs))
    made = [t for t in inputs if t not in weights]
    summed = {v for line in e.inputs for v in line.variables} - {*e.output.variables}
    main = (made[:1] if summed else made) or inputs[:1]
    parts = main, [t for t in inputs if t not in main], [e.output.tensor]
    roles = (" | ".join(tensors[t] for t in part) or "Nothing" for part in parts)
    return "{" + ", ".join(map("{}: {}".format, ("input", "weight", "output"), roles)) + "}"


def plain(text: str) -> str:
    """Return a comment of one line without characters that a template engine interprets."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("{", "(").replace("}", ")")[:300]


def _quotable(block: str) -> str:
    """Return the name of a block for double quotes, without characters that have a meaning in YAML or a
    template engine."""
    return re.sub(r"[^\w./-]", "_", block)[:LONGEST]


# Words with a meaning in set expressions, constraints, YAML or the renames of a workload.
RESERVED = frozenset(
    "All Tensors Inputs Outputs Intermediates Shared Persistent Nothing Other input output weight "
    "and or not mod exists true false yes no on off null True False Yes No On Off Null".split()
)
LONGEST = 80


def sanitised(name: str) -> str:
    """Return the name reduced to letters, digits and `_`, starting with a letter."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "t"
    text = text if text[0].isalpha() else f"t_{text}"
    text = text[:LONGEST].rstrip("_")
    return f"{text}_" if text in RESERVED else text


def unique(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a distinct sanitised name."""
    every = list(dict.fromkeys(names))
    return dict(zip(every, distinct(every), strict=True))


def distinct(names: Sequence[str]) -> list[str]:
    """Return a distinct sanitised name for each, even if two are equal."""
    used: set[str] = set()
    last: dict[str, int] = {}  # the last suffix of each name: thousands of requests may have the same name
    answer = []
    for name in names:
        found = wish = sanitised(name)
        while found in used:
            last[wish] = last.get(wish, 1) + 1
            found = f"{wish}_{last[wish]}"
        used.add(found)
        answer.append(found)
    return answer


class RankNames:
    """Names of ranks and rank variables: one index has one name in all Einsums where possible.

    A tensor that has one index twice, and an Einsum that iterates over it twice, use further names for it.
    """

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._used: set[str] = set()
        self._last: dict[str, int] = {}
        self._names: dict[int, list[str]] = {}
        self._kernels: dict[tuple[str, int], list[str]] = {}
        self.ranks: dict[str, tuple[str, ...]] = {}
        self.sizes: dict[str, int] = {}

    def of_axis(self, axis: int, taken: Sequence[str] | set[str]) -> str:
        """Return the first name of an axis that is not in use."""
        axes = self._variables.axes
        axis = axes.root(axis)
        hint, size = (
            re.sub(r"\W+", "_", axes.hint(axis), flags=re.ASCII).strip("_").upper() or "I",
            axes.size(axis),
        )
        hint = f"R_{hint}" if not hint[0].isalpha() else hint
        # Windows of one size share their names, as no other tensor has these ranks.
        key = (hint, size) if hint in ("R", "S", "T") else None
        names = self._kernels.setdefault(key, []) if key else self._names.setdefault(axis, [])
        for name in names:
            if name not in taken:
                return name
        wish = hint if hint.lower() not in RESERVED else f"{hint}_"
        base = re.sub(r"\d+$", "", wish) or wish
        name = wish if wish not in self._used else self._next(base)
        self._used.add(name)
        names.append(name)
        self.sizes[name] = size
        return name

    def _next(self, base: str) -> str:
        k = self._last.get(base, 0) + 1
        while f"{base}{k}" in self._used:
            k += 1
        self._last[base] = k
        return f"{base}{k}"

    def variables(self, e: Lowered) -> dict[str, str]:
        """Return names of the variables of one Einsum, and of the ranks of tensors that it is the first to
        use."""
        result: dict[str, str] = {}
        for line in e.inputs:
            if line.tensor in self.ranks:
                for rank, (_, expr) in zip(self.ranks[line.tensor], line.ranks, strict=True):
                    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and not expr.constant:
                        v, name = expr.variables[0], rank.lower()
                        if v not in result and name not in result.values():
                            result[v] = name
        for v in dict.fromkeys(v for line in e.lines for v in line.variables):
            if v not in result:
                taken = {n.upper() for n in result.values()}
                result[v] = self.of_axis(self._variables.axis[v], taken).lower()
        for line in e.lines:
            if line.tensor not in self.ranks:
                self.ranks[line.tensor] = self._of_tensor(line.ranks, result)
        return result

    def _of_tensor(self, ranks: Sequence[tuple[int, object]], found: dict[str, str]) -> tuple[str, ...]:
        taken: list[str] = []
        for axis, expr in ranks:
            bare = found.get(str(expr), "").upper()
            fits = bare and bare not in taken and self.sizes.get(bare) == self._variables.axes.size(axis)
            taken.append(bare if fits else self.of_axis(axis, taken))
        return tuple(taken)
