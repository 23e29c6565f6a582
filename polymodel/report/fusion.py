"""Effects of fusion on each Einsum: loops that infer or repeat it, recomputed iterations, and the reads that
they cause."""

from __future__ import annotations

from dataclasses import replace

from polymodel.analysis.result import Analysis, Problem
from polymodel.cost.records import Counts, row_order
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, StorageNode, Tie, storage_chain, ties
from polymodel.polyhedra.needs import points
from polymodel.polyhedra.sets import size
from polymodel.report.tables import KEY
from polymodel.reuse import Reuse
from polymodel.schedule.executed import executed
from polymodel.view.table import Cell, Column, Table


def unbound(problem: Problem) -> dict[str, dict[int, Tie]]:
    """Per Einsum the loops above it that bind none of its rank variables; Einsums without such loops are left
    out."""
    result: dict[str, dict[int, Tie]] = {}
    for einsum in problem.tree.einsums:
        mine: dict[int, Tie] = {
            i: t for i, t in ties(problem.cascade, problem.tree, einsum).items() if t != "bound"
        }
        if mine:
            result[einsum] = mine
    return result


def retained(problem: Problem) -> Problem:
    """The same mapping with the output of every inferred Einsum stored above all loops that do not bind it.

    Then nothing of it is executed twice. Returns the problem itself if that is so already; raises Refused
    where the storage node cannot be placed there.
    """
    lifted: dict[int, dict[tuple[str, Reuse], list[str]]] = {}
    gone: dict[int, set[str]] = {}
    for einsum, loops in unbound(problem).items():
        top = min(loops)
        for output in problem.cascade[einsum].outputs if "inferred" in loops.values() else ():
            home = storage_chain(problem.tree, einsum, output.tensor)[0]
            assert isinstance(home.node, StorageNode)
            if home.id < top:
                continue
            _refuse_instances(problem, einsum, (top, home.id), home.node.component)
            lifted.setdefault(top, {}).setdefault((home.node.component, home.node.reuse), []).append(
                output.tensor
            )
            gone.setdefault(home.id, set()).add(output.tensor)
    return replace(problem, tree=_moved(problem.tree, lifted, gone)) if lifted else problem


def _refuse_instances(problem: Problem, einsum: str, span: tuple[int, int], component: str) -> None:
    level = problem.hierarchy.index(component)
    for node, loop in problem.tree.loops(einsum):
        if span[0] <= node < span[1] and loop.spatial and problem.hierarchy.index(loop.component) <= level:
            where = f"the loop over {loop.component}.{loop.dim}"
            message = f"{component} cannot hold what {einsum} makes above {where}"
            raise Refused(message, code="unsupported-instances")


def _moved(
    tree: LoopTree, lifted: dict[int, dict[tuple[str, Reuse], list[str]]], gone: dict[int, set[str]]
) -> LoopTree:
    ids = iter(range(10**9))

    def visit(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            here = next(ids)
            for (component, reuse), tensors in lifted.get(here, {}).items():
                result.append(StorageNode(component, tuple(tensors), reuse))
            if isinstance(node, Split):
                result.append(replace(node, branches=tuple(visit(b) for b in node.branches)))
            elif isinstance(node, StorageNode):
                left = tuple(t for t in node.tensors if t not in gone.get(here, ()))
                result += [replace(node, tensors=left)] if left else []
            else:
                result.append(node)
        return tuple(result)

    return replace(tree, nodes=visit(tree.nodes))


def recompute_factors(counts: Counts) -> dict[str, tuple[int, float]]:
    """Per Einsum below a loop that does not bind it: different iterations executed, operations over them."""
    problem = counts.problem
    result: dict[str, tuple[int, float]] = {}
    names = unbound(problem)
    parts = executed(problem.cascade, problem.tree) if names else {}
    operations = {c.einsum: c.operations for c in counts.analysis.compute}
    for einsum in names:
        different = 1
        for part in parts[einsum]:
            different *= points(part.text, len(part.loops), len(part.variables))
        result[einsum] = different, operations[einsum] / different if different else 1.0
    return result


def fusion(counts: Counts, kept: Analysis | None, notes: tuple[str, ...] = ()) -> Table:
    """One row per input of each Einsum below a loop that binds none of its rank variables, and component.

    `inferred_by`: loops whose iterations execute what consumers need and is not held; `repeated_by`: loops
    that execute everything again. `recompute_factor`: operations over different iterations executed, 1
    where nothing is recomputed. `retained_read_bits`: what would be read of the input under the same mapping
    with everything retained (see `retained`), `extra_read_bits` what recomputation reads beyond it; absent
    for repeated Einsums, and where that mapping cannot be counted.
    """
    columns = (
        *KEY, Column("inferred_by"), Column("repeated_by"), Column("iterations", "operation"),
        Column("executed_iterations", "operation"), Column("operations", "operation"),
        Column("recompute_factor"), Column("read_bits", "bit"), Column("retained_read_bits", "bit"),
        Column("extra_read_bits", "bit"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    found, factors = unbound(counts.problem), recompute_factors(counts)
    operations = {c.einsum: c.operations for c in counts.analysis.compute}
    order = row_order(counts.problem)
    for einsum, loops in found.items():
        different, factor = factors[einsum]
        head: tuple[Cell, ...] = (
            _loops(counts.problem.tree, einsum, loops, "inferred"),
            _loops(counts.problem.tree, einsum, loops, "repeated"),
            size(counts.problem.cascade[einsum].iteration_space),
            different,
            operations[einsum],
        )
        comparable = kept if "repeated" not in loops.values() else None
        made = {(t.component, t.tensor) for t in counts.analysis.traffic if t.einsum == einsum}
        inputs = {a.tensor for a in counts.problem.cascade[einsum].inputs}
        for component, tensor in sorted(made, key=lambda k: (order(einsum, k[0]), k[1])):
            if tensor not in inputs:
                continue
            key = (einsum, component, tensor)
            given = _reads(counts, counts.analysis, key)
            least = None if comparable is None else _reads(counts, comparable, key)
            extra = None if least is None else given - least
            rows.append((*key, *head, factor, given, least, extra))
    return Table("fusion", columns, tuple(rows), notes if rows else ())


def _loops(tree: LoopTree, einsum: str, kinds: dict[int, Tie], kind: str) -> str:
    named: dict[int, Loop] = dict(tree.loops(einsum))
    return ", ".join(f"{named[i].rank_variable} (node {i})" for i, k in kinds.items() if k == kind)


def _reads(counts: Counts, analysis: Analysis, key: tuple[str, str, str]) -> int:
    result = sum(t.reads for t in analysis.traffic if (t.einsum, t.component, t.tensor) == key)
    return result * counts.executions(key[0]) * counts.bits(key[2])
