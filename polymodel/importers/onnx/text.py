"""The cascade as YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from polymodel.affine import Affine
from polymodel.importers.onnx.lower import Line, Lowered, Variables, limits_of
from polymodel.importers.onnx.names import RankNames, distinct
from polymodel.importers.onnx.views import substituted

WIDTH = 118


@dataclass(frozen=True)
class Header:
    """What stands above the workload."""

    name: str
    source: str
    remarks: tuple[str, ...] = ()


def yaml_of(
    einsums: Sequence[Lowered],
    variables: Variables,
    tensors: Mapping[str, str],
    bits: Mapping[str, int],
    weights: Collection[str],
    header: Header,
) -> str:
    """The workload; `tensors`: names in the file -> ours; `bits`: bits per value of each."""
    ranks = RankNames(variables)
    called = distinct([e.name for e in einsums])
    used = list(dict.fromkeys(line.tensor for e in einsums for line in e.lines))
    ((common, _),) = Counter(bits[t] for t in used).most_common(1)
    told: set[str] = set()
    body: list[str] = []
    for e, own_name in zip(einsums, called, strict=True):
        names = ranks.variables(e)
        body += [f"  # {plain('; '.join(e.about))}", f"  - name: {own_name}"]
        if e.copy:
            body.append("    is_copy_operation: true")
        body.append("    tensor_accesses:")
        for line in e.lines:
            own = (
                ""
                if bits[line.tensor] == common or line.tensor in told
                else f", bits_per_value: {bits[line.tensor]}"
            )
            # A name that is not the file's own stands beside it once.
            same = line.tensor in told or tensors[line.tensor] == line.tensor
            aside = "" if same else f"  # {plain(line.tensor)}"
            told.add(line.tensor)
            projection = _projection(line, ranks, names)
            out = ", output: true" if line is e.output else ""
            body.append(f"    - {{name: {tensors[line.tensor]}, projection: {projection}{out}{own}}}{aside}")
        limits = limits_of(variables, e, names)
        if limits:
            body.append("    iteration_space_shape: [" + ", ".join(f'"{text}"' for text in limits) + "]")
        body += _operations(e, names)
        body.append(f"    renames: {_renames(e, tensors, weights)}")
    head = ["# yaml-language-server: $schema=./polymodel.schema.json"]
    head += [f"# {plain(text)}" for text in header.remarks]
    sizes = {name: ranks.sizes[name] for name in dict.fromkeys(r for t in used for r in ranks.ranks[t])}
    head += ["schema_version: 1", "workload:", f"  name: {header.name}", *_sizes(sizes)]
    head += [f"  bits_per_value: {{All: {common}}}", "  einsums:"]
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


def _projection(line: Line, ranks: RankNames, names: Mapping[str, str]) -> str:
    table = {v: Affine.variable(n) for v, n in names.items()}
    found = [
        (r, str(substituted(x, table))) for r, x in zip(ranks.ranks[line.tensor], line.exprs, strict=True)
    ]
    if all(text.upper() == rank and text.islower() for rank, text in found):
        return "[" + ", ".join(text for _, text in found) + "]"
    return "{" + ", ".join(f"{rank}: {text}" for rank, text in found) + "}"


def _operations(e: Lowered, names: Mapping[str, str]) -> list[str]:
    word = e.map
    if e.over:
        word = f"{e.map}(_0, {', '.join(names[v] for v in e.over)})"
    found = {"map": word, "reduce": e.reduce if e.reduce != "add" else "", "populate": "; ".join(e.populate)}
    kept = {k: v if v.isidentifier() else f'"{v}"' for k, v in found.items() if v}
    return ["    operations: {" + ", ".join(f"{k}: {v}" for k, v in kept.items()) + "}"] if kept else []


def _renames(e: Lowered, tensors: Mapping[str, str], weights: Collection[str]) -> str:
    inputs = list(dict.fromkeys(line.tensor for line in e.inputs))
    made = [t for t in inputs if t not in weights]
    main = made[:1] or inputs[:1]
    rest = [tensors[t] for t in inputs if t not in main]
    weight = " | ".join(rest) or "Nothing"
    return f"{{input: {tensors[main[0]]}, weight: {weight}, output: {tensors[e.output.tensor]}}}"


def plain(text: str) -> str:
    """A comment of one line that no template engine reads anything into."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("{", "(").replace("}", ")")[:300]
