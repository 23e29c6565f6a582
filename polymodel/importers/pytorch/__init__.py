"""Convert programs of `torch.export` to workloads, by the rules for ONNX operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from polymodel.importers.imported import Imported
from polymodel.importers.onnx import Choices, Origin, check_choices, workload_of
from polymodel.importers.onnx.graph import Graph
from polymodel.importers.pytorch.operators import translated
from polymodel.importers.pytorch.program import SOURCE, program_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["import_torch"]


def import_torch(
    program: ExportedProgram,
    *,
    name: str = "program",
    bits: int | None = None,
    fuse: Literal["elementwise", "none"] = "elementwise",
    softmax: Literal["one", "cascade"] = "one",
    padding: Literal["skipped", "stored"] = "skipped",
    strict: bool = False,
) -> Imported:
    """Return the workload of a PyTorch module traced by `torch.export.export`. For example
    `import_torch(torch.export.export(net.eval(), (x,)), name="net").save("net.yaml")`, for the program as it
    is or after `run_decompositions()`.

    `name`: that of the workload. `bits`, `fuse`, `softmax`, `padding` and `strict` have the same meaning as
    for `import_onnx`, and operators become the same Einsums. Weights are not read, and nothing in the program
    is run; its sizes are those with which it was exported. Raises SpecError: no such program, a dynamic one,
    inconsistent operations; with `strict` every operation without a counterpart.
    """
    check_choices(bits, fuse, softmax, padding)
    found = program_of(program)
    into = translated(found)
    graph = Graph(
        name,
        tuple(into.nodes),
        found.inputs,
        found.outputs,
        into.values,
        found.unknown,
        into.constants,
        frozenset(into.weights),
    )
    origin = Origin(SOURCE, f"a program of torch.export, {name}", name)
    return workload_of(graph, origin, Choices(bits, fuse, softmax, padding, strict))
