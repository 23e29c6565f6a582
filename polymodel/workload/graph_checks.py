"""The order of a cascade: names, outputs, producers before consumers, no cycles."""

from __future__ import annotations

from polymodel.spec import Workload
from polymodel.spec.faults import Faults, Path


def check_cascade(workload: Workload, faults: Faults) -> None:
    """Add a fault for everything that is wrong between Einsums."""
    if not workload.einsums:
        faults.add(
            ("workload", "einsums"), "the workload has no Einsum", "add e.g. `- Y[m] = A[m, k] * B[k]`"
        )
    names: dict[str, int] = {}
    producers: dict[str, int] = {}
    for i, einsum in enumerate(workload.einsums):
        path: Path = ("workload", "einsums", i)
        if einsum.name in names:
            faults.add(path, f"Einsum {einsum.name} is given twice", "give it another name")
        names.setdefault(einsum.name, i)
        outputs = [a.name for a in einsum.tensor_accesses if a.output]
        if not outputs:
            faults.add(
                path, f"Einsum {einsum.name} has no output", "mark one tensor access with output: true"
            )
        for tensor in dict.fromkeys(outputs):
            if tensor in producers:
                first = workload.einsums[producers[tensor]].name
                message = f"tensor {tensor} is produced by {first} and by {einsum.name}"
                faults.add(path, message, "give one of the results another name")
            producers.setdefault(tensor, i)
        if einsum.is_copy_operation and len(einsum.tensor_accesses) - len(outputs) != 1:
            faults.add(
                path, f"copy Einsum {einsum.name} must have one input", "name exactly one source tensor"
            )
    _check_order(workload, producers, faults)


def _check_order(workload: Workload, producers: dict[str, int], faults: Faults) -> None:
    needs = [
        {producers[a.name] for a in e.tensor_accesses if not a.output and a.name in producers} - {i}
        for i, e in enumerate(workload.einsums)
    ]
    cycle = _cycle(needs)
    if cycle:
        shown = " -> ".join(workload.einsums[i].name for i in (*cycle, cycle[0]))
        faults.add(("workload", "einsums", cycle[0]), f"the cascade is cyclic: {shown}", "break the cycle")
        return
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            producer = producers.get(access.name, i)
            if not access.output and producer > i:
                late = workload.einsums[producer].name
                path: Path = ("workload", "einsums", i, "tensor_accesses", j, "name")
                message = f"Einsum {einsum.name} reads {access.name} before {late} produces it"
                faults.add(path, message, f"list {late} before {einsum.name}")


def _cycle(needs: list[set[int]]) -> list[int]:
    """Some cycle of the graph, empty if there is none."""
    done: set[int] = set()
    for start in range(len(needs)):
        trail: list[int] = []
        stack = [(start, iter(sorted(needs[start])))]
        on_trail = {start}
        if start in done:
            continue
        trail.append(start)
        while stack:
            node, below = stack[-1]
            step = next(below, None)
            if step is None:
                done.add(node)
                stack.pop()
                on_trail.discard(trail.pop())
            elif step in on_trail:
                return trail[trail.index(step) :]
            elif step not in done:
                stack.append((step, iter(sorted(needs[step]))))
                trail.append(step)
                on_trail.add(step)
    return []
