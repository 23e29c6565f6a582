"""Programs of `torch.export` become workloads, by the rules of ONNX's operators."""

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
    """The workload of a PyTorch module that `torch.export.export` has traced.

    For example `import_torch(torch.export.export(net.eval(), (x,)), name="net").save("net.yaml")`, of the
    program as it is or after `run_decompositions()`. `name`: of the workload. `bits`, `fuse`, `softmax`,
    `padding` and `strict` mean what they do for `import_onnx`, and operators become the same Einsums.
    Weights are not read and nothing of the program is run; its sizes are those it was exported with.

    Raises SpecError: no such program, a dynamic one, operations that contradict themselves; with `strict`
    every operation without a counterpart.
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
