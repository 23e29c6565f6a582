"""AccelForge oracle files (`accelforge-oracle/1`): build the problem, compare every number.

`bruteforce.tree` is compared with reuse `refill`, `bruteforce.delta_min_traffic` with
`keep_previous`; the tool's own numbers where the file's verdict says that they are exact.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from polymodel.analysis.result import Analysis, Engine, Problem
from polymodel.architecture.hierarchy import ActionCost, Component, FanoutDim, Hierarchy, TensorRule
from polymodel.cost.costs import costs
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.reference.common import Outcome, accesses, affine, box, sections
from tests.reference.lowering import lowered

FORMAT = "accelforge-oracle/1"
CASE_KEYS = "format name description workload arch mapping accelforge bruteforce verdict".split()
WORKLOAD_KEYS = "ranks tensors bits_per_value einsums persistent n_instances".split()
ARCH_KEYS = (
    "type name size_bits read_energy_per_bit write_energy_per_bit read_bits_per_cycle write_bits_per_cycle"
    " spatial skip_initial_output_write energy_per_op ops_per_cycle leak_power tensors keep"
).split()

Numbers = dict[str, Any]


def build(case: Numbers, outcome: Outcome) -> Problem:
    """The contract objects of a case file."""
    outcome.unknown("case", case, CASE_KEYS)
    cascade = _cascade(case["workload"], outcome)
    return Problem(cascade, _hierarchy(case["arch"], cascade, outcome), tree_of(case["mapping"], outcome))


def _cascade(workload: Numbers, outcome: Outcome) -> Cascade:
    outcome.unknown("workload", workload, WORKLOAD_KEYS)
    einsums = tuple(_einsum(e, workload, outcome) for e in workload["einsums"])
    return Cascade(einsums, tuple(sorted(workload["ranks"].items())))


def _einsum(given: Numbers, workload: Numbers, outcome: Outcome) -> Einsum:
    outcome.unknown(
        f"Einsum {given['name']}", given, ("name", "inputs", "output", "outputs", "copy", "n_instances")
    )
    outputs = given.get("output", given.get("outputs"))
    found = []
    for tensor, indices in [*given["inputs"].items(), *outputs.items()]:
        found.append(
            TensorAccess(
                tensor,
                tuple(workload["tensors"][tensor]),
                tuple(affine(i) for i in indices),
                output=tensor in outputs,
                bits_per_value=workload["bits_per_value"][tensor],
                persistent=tensor in workload.get("persistent", ()),
            )
        )
    variables = tuple(dict.fromkeys(v for a in found for v in a.variables))
    sizes = {v: workload["ranks"][v] for v in variables}
    return Einsum(
        given["name"],
        variables,
        box(sizes),
        tuple(found),
        tuple((0, sizes[v] - 1) for v in variables),
        is_copy=bool(given.get("copy", False)),
        n_instances=workload.get("n_instances", 1) * given.get("n_instances", 1),
    )


def _hierarchy(arch: list[Numbers], cascade: Cascade, outcome: Outcome) -> Hierarchy:
    components = []
    for given in arch:
        outcome.unknown(f"component {given['name']}", given, ARCH_KEYS)
        if given["type"] == "compute":
            actions = (_action(given, "compute", "energy_per_op", "ops_per_cycle"),)
        else:
            actions = (
                _action(given, "read", "read_energy_per_bit", "read_bits_per_cycle"),
                _action(given, "write", "write_energy_per_bit", "write_bits_per_cycle"),
            )
        dims = tuple(_dim(d, given["name"], cascade, outcome) for d in given.get("spatial", ()))
        kept = given.get("tensors", given.get("keep"))
        components.append(
            Component(
                given["name"],
                given["type"],
                size_bits=given.get("size_bits", float("inf")),
                actions=actions,
                leak_power=given.get("leak_power", 0.0),
                spatial=dims,
                keep=None if kept is None else _rule(kept, cascade),
                read_first=not given.get("skip_initial_output_write", True),
            )
        )
    return Hierarchy(tuple(components))


def _action(given: Numbers, name: str, energy: str, throughput: str) -> ActionCost:
    return ActionCost(name, given.get(energy, 0.0), given.get(throughput, float("inf")))


def _dim(given: Numbers, where: str, cascade: Cascade, outcome: Outcome) -> FanoutDim:
    outcome.unknown(f"fanout of {where}", given, ("name", "fanout", "max_fanout", "may_reuse"))
    rule = _rule(given["may_reuse"], cascade) if "may_reuse" in given else None
    fanout = given.get("fanout", given.get("max_fanout"))
    return FanoutDim(given["name"], fanout, rule, broadcast_partials=True)


def _rule(given: str | list[str], cascade: Cascade) -> TensorRule:
    """`All`, `Nothing`, or names joined by `|`, each perhaps complemented by `~`."""
    terms = given if isinstance(given, list) else [t.strip(" ()") for t in given.split("|")]
    table = []
    for einsum in cascade:
        universe, kept = set(einsum.tensors), set()
        for term in terms:
            name = term.lstrip("~")
            group = {"All": universe, "Tensors": universe, "Nothing": set()}.get(name, {name} & universe)
            if name in ("Inputs", "Outputs"):
                group = {a.tensor for a in (einsum.inputs if name == "Inputs" else einsum.outputs)}
            kept |= universe - group if term.startswith("~") else group
        table.append((einsum.name, frozenset(kept)))
    return TensorRule(str(given), tuple(table))


def tree_of(nodes: list[Numbers], outcome: Outcome) -> LoopTree:
    return LoopTree(_nodes(nodes, outcome))


def _nodes(nodes: list[Numbers], outcome: Outcome) -> tuple[Node, ...]:
    found: list[Node] = []
    for given in nodes:
        if "storage" in given:
            outcome.unknown("storage node", given, ("storage", "tensors", "persistent"))
            found.append(StorageNode(given["storage"], tuple(given["tensors"])))
        elif "temporal" in given or "spatial" in given:
            found.append(_loop(given, outcome))
        elif "compute" in given:
            outcome.unknown("compute node", given, ("compute", "component"))
            found.append(ComputeNode(given["compute"], given["component"]))
        elif "nested" in given:
            found.extend(_nodes(given["nested"], outcome))
        elif "sequential" in given or "pipeline" in given:
            kind = "sequential" if "sequential" in given else "pipeline"
            branches = tuple(_nodes(b, outcome) for b in given[kind])
            found.append(Split(branches, kind == "pipeline"))
        else:
            outcome.mismatches.append(f"mapping node not understood: {given}")
    return tuple(found)


def _loop(given: Numbers, outcome: Outcome) -> Loop:
    kind = "temporal" if "temporal" in given else "spatial"
    outcome.unknown(f"{kind} loop", given, (kind, "tile", "initial_tile", "component", "dim"))
    variable, renamed = given[kind], ()
    if isinstance(variable, dict):
        renamed = tuple(variable.items())
        variable = renamed[0][1]
    return Loop(
        variable,
        given["tile"],
        given.get("initial_tile"),
        spatial=kind == "spatial",
        component=given.get("component", ""),
        dim=given.get("dim", ""),
        per_einsum=renamed,
    )


def check(case: Numbers, path: Path, engine: Engine) -> Outcome:
    """Compare one case; see the module's text for what with what."""
    outcome = Outcome(f"accelforge/{case.get('name', path.stem)}")
    sections(case, {"workload": dict, "arch": list, "mapping": list})
    problem = build(case, outcome)
    refill = _with_live(engine, problem, outcome)
    brute = case.get("bruteforce") or {}
    tool = case.get("accelforge") or {}
    verdict = (case.get("verdict") or {}).get("accelforge", "")
    if brute.get("tree"):
        _check_tree(outcome, problem, refill, brute["tree"])
    if brute.get("delta_min_traffic"):
        least = engine.analyse(problem, reuse="keep_previous")
        table = {e: {"levels": levels} for e, levels in brute["delta_min_traffic"].items()}
        check_traffic(outcome, "delta", problem, least, table, _copies_of(brute["tree"], problem, refill))
    if tool.get("einsums"):
        exact = verdict.startswith("exact")
        _check_tool(outcome, problem, refill, engine, tool, exact)
    if not outcome.checked and not tool:
        outcome.mismatches.append("nothing in this file could be compared")
    return outcome


def _with_live(engine: Engine, problem: Problem, outcome: Outcome) -> Analysis:
    """Refilled counts with live figures; without them, and a note, where they are refused."""
    try:
        return engine.analyse(problem, reuse="refill", live=True)
    except Refused as refusal:
        outcome.notes.append(f"live bits not compared: {refusal.message}")
        return engine.analyse(problem, reuse="refill")


def _copies_of(tree: Numbers | None, problem: Problem, result: Analysis) -> dict[str, int]:
    """By Einsum, whether the file's brute-force counts include n_instances (told by its computes)."""
    factors = {e.name: 1 for e in problem.cascade}
    for row in result.compute:
        given = ((tree or {}).get(row.einsum) or {}).get("computes")
        if given is not None and row.operations and given != row.operations:
            factors[row.einsum] = problem.cascade[row.einsum].n_instances
    return factors


def _check_tree(outcome: Outcome, problem: Problem, result: Analysis, tree: Numbers) -> None:
    factors = _copies_of(tree, problem, result)
    check_traffic(outcome, "tree", problem, result, tree, factors)
    for row in result.compute:
        if "computes" in (tree.get(row.einsum) or {}):
            outcome.equal(
                f"tree {row.einsum} computes",
                row.operations * factors[row.einsum],
                tree[row.einsum]["computes"],
            )
    sizes = tile_bits(problem, result)
    for einsum, level, tensor, numbers in entries(tree):
        if "occupancy_bits" not in numbers:
            continue
        where = f"tree {einsum} {level}.{tensor}"
        expected = numbers.get("tile_bits_at_node", numbers["occupancy_bits"])
        tile, live = sizes.get((einsum, level, tensor), (0, 0))
        outcome.equal(f"{where} tile bits", tile, expected)
        outcome.at_most(f"{where} live bits", live, expected)


def entries(table: Numbers) -> list[tuple[str, str, str, Numbers]]:
    found = []
    for einsum, body in table.items():
        for level, tensors in (body.get("levels") or {}).items():
            for tensor, numbers in tensors.items():
                found.append((einsum, level, tensor, numbers))
    return found


def check_traffic(
    outcome: Outcome, label: str, problem: Problem, result: Analysis, table: Numbers, factors: dict[str, int]
) -> None:
    """Reads and writes per Einsum, level and tensor, both ways round; a copy's per level."""
    ours = _bits(problem, accesses(result), factors)
    theirs = {
        (e, level, t): (n["read_bits"], n["write_bits"])
        for e, level, t, n in entries(table)
        if "read_bits" in n
    }
    for given in (ours, theirs):
        _merge_copies(problem, given)
    for key in sorted({*theirs, *(k for k, v in ours.items() if v != (0, 0))}):
        einsum, level, tensor = key
        if einsum not in table:
            continue
        for kind, a, b in zip(
            ("reads", "writes"), ours.get(key, (0, 0)), theirs.get(key, (0, 0)), strict=True
        ):
            outcome.equal(f"{label} {einsum} {level}.{tensor} {kind} bits", a, b)


Bits = dict[tuple[str, str, str], tuple[int, int]]


def _merge_copies(problem: Problem, table: Bits) -> None:
    """A file books a copy under one name: add up source and destination per level."""
    for einsum, level, tensor in list(table):
        if problem.cascade[einsum].is_copy:
            reads, writes = table.pop((einsum, level, tensor))
            before = table.get((einsum, level, "*"), (0, 0))
            table[einsum, level, "*"] = before[0] + reads, before[1] + writes


def _bits(problem: Problem, found: Bits, factors: dict[str, int]) -> Bits:
    width = {a.tensor: a.bits_per_value for e in problem.cascade for a in e.accesses}
    return {
        (e, c, t): (r * width[t] * factors[e], w * width[t] * factors[e])
        for (e, c, t), (r, w) in found.items()
    }


def tile_bits(problem: Problem, result: Analysis) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(Einsum, component, tensor) -> largest tile and live bits; a persistent backing copy per instance."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for b in result.buffets:
        for einsum in b.einsums:
            access = problem.cascade[einsum].access_of(b.tensor)
            times = problem.cascade[einsum].n_instances if access.persistent and b.parent is None else 1
            tile, live = found.get((einsum, b.component, b.tensor), (0, 0))
            width = access.bits_per_value * times
            found[einsum, b.component, b.tensor] = (
                max(tile, b.tile_max * width),
                max(live, (b.live or 0) * width),
            )
    return found


def _check_tool(
    outcome: Outcome, problem: Problem, result: Analysis, engine: Engine, tool: Numbers, exact: bool
) -> None:
    """The tool's own numbers: compared where they are exact, listed as differences where not."""
    compare = outcome.equal if exact else outcome.inform
    factors = {e.name: e.n_instances for e in problem.cascade}
    table = tool["einsums"]
    shadow = outcome if exact else Outcome("")
    check_traffic(shadow, "tool", problem, result, table, factors)
    if not exact:
        outcome.notes += [f"tool differs: {m}" for m in shadow.mismatches]
    below = Problem(problem.cascade, problem.hierarchy, lowered(problem))
    moved = _with_live(engine, below, outcome)
    sizes, at_node = tile_bits(problem, moved), tile_bits(problem, result)
    for einsum, level, tensor, numbers in entries(table):
        where = f"tool {einsum} {level}.{tensor}"
        if problem.cascade[einsum].is_copy:
            sizes.setdefault((einsum, level, tensor), (0, 0))
        compare(
            f"{where} occupancy bits",
            sizes.get((einsum, level, tensor), (0, 0))[0],
            numbers["occupancy_bits"],
        )
        if exact:
            live = at_node.get((einsum, level, tensor), (0, 0))[1]
            outcome.at_most(f"{where} live bits", live, numbers["occupancy_bits"])
    check_costs(compare, problem, result, tool)
    for level, bits in (tool.get("peak_usage_bits") or {}).items():
        peaks = [w.bits for w in moved.working_sets if w.component == level and w.measure == "tile"]
        compare(f"tool peak usage of {level}", max(peaks, default=0), bits)


def check_costs(compare: Any, problem: Problem, result: Analysis, tool: Numbers) -> None:
    """Operations, latency and energy, as `polymodel.cost` makes them from the counts; the unit is a cycle."""
    found = costs(problem, result)
    cycles = {(t.einsum, t.component): t.seconds for t in found.times}
    for row in result.compute:
        einsum, given = problem.cascade[row.einsum], tool["einsums"].get(row.einsum, {})
        if row.component in (given.get("compute") or {}):
            operations = row.operations * einsum.n_instances
            compare(f"tool {row.einsum} computes", operations, given["compute"][row.component])
        for component, latency in (given.get("latency") or {}).items():
            ours = float(cycles.get((row.einsum, component), 0))
            compare(f"tool {row.einsum} latency of {component}", ours, latency)
        _check_usage(compare, problem, row, given)
    energy: dict[tuple[str, str, str], float] = {}
    for item in found.energy:
        key = (item.einsum, item.component, item.tensor)
        energy[key] = energy.get(key, 0.0) + item.energy
    for einsum_name, level, tensor, numbers in entries(tool["einsums"]):
        if "energy" in numbers and not problem.cascade[einsum_name].is_copy:
            ours = energy.get((einsum_name, level, tensor), 0.0)
            compare(f"tool {einsum_name} {level}.{tensor} energy", ours, numbers["energy"])
    totals = tool.get("totals") or {}
    if "latency" in totals:
        compare("tool total latency", float(found.total_latency), totals["latency"])
    if "energy" in totals:
        compare("tool total energy", found.total_energy, totals["energy"])


def _check_usage(compare: Any, problem: Problem, row: Any, given: Numbers) -> None:
    """Used units: the product of the usages of all dimensions, times all units, is our count."""
    usage = given.get("spatial_usage")
    if usage and len(usage) == sum(len(c.spatial) for c in problem.hierarchy.components):
        units = problem.hierarchy.instances(row.component)
        product = Fraction(1)
        for share in usage.values():
            product *= Fraction(share).limit_denominator(units)
        compare(f"tool {row.einsum} spatial usage", Fraction(row.instances, units), float(product))


__all__ = ["FORMAT", "build", "check", "tile_bits"]
