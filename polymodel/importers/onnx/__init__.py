"""Convert ONNX graphs to workloads: operators become Einsums, transposes and reshapes become renamed
ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.importers.imported import Imported
from polymodel.importers.onnx.build import BITS, Builder, Options
from polymodel.importers.onnx.convert import converted
from polymodel.importers.onnx.fuse import fused
from polymodel.importers.onnx.graph import Graph
from polymodel.importers.onnx.lower import Lowered, lowered
from polymodel.importers.onnx.reading import graph_of, model_of
from polymodel.importers.onnx.text import WorkloadHeader, sanitised, unique, yaml_of
from polymodel.spec.faults import by_name, not_a, plainly

if TYPE_CHECKING:
    import onnx

__all__ = ["Choices", "Origin", "check_choices", "import_onnx", "workload_of"]

APART = "an Einsum of its own: its weight has as many elements as its result, so that reading it is counted"
APART_REMEDY = "with a batch of more than one, a bias has fewer, and is part of the Einsum before it"


def import_onnx(
    model: str | Path | onnx.ModelProto,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    bits: int | None = None,
    fuse: Literal["elementwise", "none"] = "elementwise",
    softmax: Literal["one", "cascade"] = "one",
    padding: Literal["skipped", "stored"] = "skipped",
    strict: bool = False,
) -> Imported:
    """Return the workload of an ONNX model: a `.onnx` file, or a ModelProto. For example
    `import_onnx("net.onnx", sizes={"batch": 1}, bits=8).save("net.yaml")`.

    `name`: that of the workload; by default that of the graph. `sizes`: numbers for symbolic dimensions of
    the inputs, by their name or as `input.k`. `bits`: bits per value of all tensors; by default those of
    their types. `fuse`: `elementwise` merges activations, biases and other element-wise operations with one
    computed operand into the Einsum that produces it, `none` gives each an Einsum. `softmax`: `one` operation
    per score, or the `cascade` of maximum, exponential, sum and quotient. `padding`: `skipped` zeros are
    neither stored nor multiplied; `stored` zeros are elements of an additional input, so that iteration
    spaces are boxes, which `explore` supports. `strict`: everything that would be left out is a fault.

    Dimensions of one element are not ranks. Weights are not read, and no file except the model's own is
    opened. Raises SpecError: no model, missing sizes, inconsistent nodes, no onnx package; with `strict`
    every node without a counterpart.
    """
    check_choices(bits, fuse, softmax, padding)
    source = str(model) if isinstance(model, (str, Path)) else "model"
    if not isinstance(model, (str, Path)) and not hasattr(model, "graph"):
        raise not_a("ONNX model", "import_onnx", model, "pass the name of a .onnx file, or a loaded model")
    by_name("sizes", sizes or {}, '{"batch": 4}')
    proto = model_of(model) if isinstance(model, (str, Path)) else model
    graph = graph_of(proto, plainly(dict(sizes or {})), source)
    origin = f"ONNX: {Path(source).name}, graph {graph.name}"
    return workload_of(
        graph, Origin(source, origin, name or graph.name), Choices(bits, fuse, softmax, padding, strict)
    )


@dataclass(frozen=True)
class Origin:
    """The origin of a graph. `shown`: the description in the workload. `title`: the name."""

    source: str
    shown: str
    title: str


@dataclass(frozen=True)
class Choices:
    """How a graph is converted to a workload; `import_onnx` explains each choice."""

    bits: int | None = None
    fuse: str = "elementwise"
    softmax: str = "one"
    padding: str = "skipped"
    strict: bool = False


def workload_of(graph: Graph, origin: Origin, choices: Choices) -> Imported:
    """Return the workload of a graph, from whichever tool."""
    source = origin.source
    b = converted(graph, source, Options(choices.softmax, choices.padding))
    if choices.strict and b.left_out:
        raise SpecError(b.left_out)
    einsums, variables = lowered(b)
    if not einsums:
        message = "no node of the graph becomes an Einsum"
        remedy = "see what is left out" if b.left_out else "it only moves data: import a graph that computes"
        raise SpecError([Diagnostic(message, remedy, "", Place(source), code="no-counterpart"), *b.left_out])
    tensors = unique(b.tensors)
    weights = {t.name for t in b.tensors.values() if t.weight}
    notes = list(b.notes)
    if choices.fuse == "elementwise":
        results = {b.views[o].tensor for o in graph.outputs if o in b.views}
        einsums, taken, apart = fused(einsums, weights, results, tensors)
        notes += [
            Diagnostic(APART, APART_REMEDY, e.about[0], Place(source), code="read-otherwise") for e in apart
        ]
        notes += [_taken(part, whole, weights, source) for part, whole in taken]
    width = {t: choices.bits or BITS[b.tensors[t].dtype] for t in b.tensors}
    header = WorkloadHeader(sanitised(origin.title), source, _remarks(b, origin))
    text = yaml_of(einsums, variables, tensors, width, weights, header)
    return Imported(source, text, _grouped(notes), tuple(b.left_out))


def check_choices(bits: int | None, fuse: str, softmax: str, padding: str) -> None:
    """Raise SpecError for every invalid choice."""
    faults = []
    if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int) or bits < 1):
        message = f"bits = {bits!r} is not a whole number of at least 1"
        faults.append(Diagnostic(message, "write e.g. 8", code="not-positive-integer"))
    for key, value, words in (
        ("fuse", fuse, ("elementwise", "none")),
        ("softmax", softmax, ("one", "cascade")),
        ("padding", padding, ("skipped", "stored")),
    ):
        if value not in words:
            message = f"{key} = {value!r} is not known"
            faults.append(Diagnostic(message, f"write {' or '.join(words)}", code="unknown-choice"))
    if faults:
        raise SpecError(faults)


def _taken(part: Lowered, whole: Lowered, weights: set[str], source: str) -> Diagnostic:
    read = any(line.tensor in weights for line in part.inputs)
    if read and part.about[0] in whole.about:
        message = "its bias is taken as part of its Einsum; reading the bias is not counted"
    else:
        more = "; reading its weights is not counted" if read else ""
        message = f"taken as part of the Einsum before it{more}"
    remedy = "fuse='none' gives it an Einsum of its own"
    return Diagnostic(message, remedy, part.about[0], Place(source), code="read-otherwise")


def _grouped(notes: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Combine notes that are equal for several nodes; the Einsums' comments name the merged operations."""
    groups: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        groups.setdefault((note.message, note.remedy), []).append(note.path)
    result = []
    for (message, remedy), paths in groups.items():
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        result.append(
            Diagnostic(message, remedy, ", ".join(paths[:3]) + more, notes[0].place, code="read-otherwise")
        )
    return tuple(result)


def _remarks(b: Builder, origin: Origin) -> tuple[str, ...]:
    return (f"Imported from {origin.shown}.", *(f"Left out: {d.path}: {d.message}." for d in b.left_out))
