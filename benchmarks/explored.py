"""`explore` beside AccelForge's mapper in the same run: same workload, architecture and constraints.

The problems stand in `benchmarks/problems`. Either tool runs in one process, and ratios are of CPU
seconds, which other work on the machine disturbs least. Ours include the evaluation of what is returned, the
peer's are its search alone. Nothing that the peer finds may beat what we find.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

import polymodel as pm
from benchmarks.accelforge_peer import VERSION, NotInstalled, environment, run
from benchmarks.rows import Row, cpu_seconds
from tests.reference.common import Outcome
from tests.reference.mapper_search import limits_of
from tests.reference.mapper_spec import spec_of, understood

HERE = Path(__file__).resolve().parent
CASES = HERE / "problems"
Case = dict[str, Any]
GPT3 = "gpt3_6.7b_2048_glb16MiB_mfl1"
LARGE = "gpt3_6.7b_2048_glb128MiB_mfl1"
ENERGY, BOTH, THREE = ("energy",), ("energy", "latency"), ("energy", "latency", "working_set")
REGISTERS: Case = {
    "type": "memory", "name": "RF", "size_bits": 8 * 512, "read_energy_per_bit": 1, "write_energy_per_bit": 1,
    "read_bits_per_cycle": 65536, "write_bits_per_cycle": 65536,
}  # fmt: skip
CLOSE = 1e-9  # relative; both tools add floats
CASE_SECONDS, FRONT_SECONDS = 600, 300  # the peer's limit on one search; ours on the three-level front
SAMPLE = 40  # of a large front, the mappings that are evaluated
COMPONENT = {
    "memory": "type name size_bits read_energy_per_bit write_energy_per_bit read_bits_per_cycle"
    " write_bits_per_cycle must_hold may_hold",
    "compute": "type name energy_per_op ops_per_cycle",
}


@dataclass(frozen=True)
class Race:
    """One problem; `beside`: the peer runs in every run of the benchmark, else only in a long one.

    `repeats`: of our search. `close`: how near the figures of both tools are if they are equal (relative).
    `seconds`: the peer's limit.
    """

    name: str
    case: str
    objectives: tuple[str, ...]
    beside: bool
    repeats: int = 3
    close: float = CLOSE
    seconds: int = CASE_SECONDS

    @property
    def shown(self) -> str:
        return f"explore {self.name}, {' and '.join(self.objectives)}"

    def problem(self) -> tuple[pm.Spec, pm.Limits]:
        """What our search is given."""
        case = case_of(self.case)
        return spec_of(case), limits(case)

    def told(self) -> tuple[str, Case]:
        """What the peer is given: its YAML, and the settings of its mapper."""
        case = case_of(self.case)
        return peer_spec(case), case["mapper"]["settings"]


@dataclass(frozen=True)
class Ran:
    """Seconds, and energy and/or latency of each mapping found, as the objectives say."""

    cpu: float
    wall: float
    values: tuple[tuple[float, ...], ...]


SMALL = (
    Race("a chain of three matmuls of 128^3, 4 KiB", "chain3_128_glb32768", BOTH, True),
    Race("attention over 1024 tokens, 128 KiB", "attention_1024_glb1048576", BOTH, True),
)
LAYERS = (
    Race("the GPT-3 layer, 16 MiB", GPT3, ENERGY, True),
    Race("the GPT-3 layer, 16 MiB", GPT3, BOTH, False),
    Race("the GPT-3 layer, 128 MiB", LARGE, ENERGY, False),
    Race("the GPT-3 layer, 128 MiB", LARGE, BOTH, False),
)


def case_of(name: str) -> Case:
    result: Case = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))
    return result


def limits(case: Case) -> pm.Limits:
    """The case's settings of the peer's mapper as ours. ValueError for those that are not understood."""
    outcome = Outcome(case["name"])
    result = limits_of(case, outcome)
    if outcome.mismatches:
        raise ValueError(f"{case['name']}: {'; '.join(outcome.mismatches)}")
    return result


def explored(forget: Callable[[], None], long: bool) -> tuple[dict[str, Row], list[str]]:
    """All rows, and what the peer found that beats what we found."""
    rows, faults = races((*SMALL, *LAYERS), forget, long)
    return {
        **rows,
        **three_levels("the GPT-3 layer", GPT3, FRONT_SECONDS),
        **looked_at("the GPT-3 layer", GPT3),
    }, faults


def races(some: tuple[Race, ...], forget: Callable[[], None], long: bool) -> tuple[dict[str, Row], list[str]]:
    """A row each; without AccelForge it says why, and where it was not asked to run, how to ask."""
    rows: dict[str, Row] = {}
    faults: list[str] = []
    for race in some:
        mine, theirs = ours(race, forget), None
        said = f"mappings found: {len(mine.values)}, all confirmed by evaluate, wall {mine.wall:.2f} s"
        if not long and not race.beside:
            said += f"; AccelForge {VERSION}: only with LONG=1"
        else:
            try:
                theirs = peer(race)
                said += f"; AccelForge {VERSION}: wall {theirs.wall:.2f} s"
            except NotInstalled as fault:
                said += f"; AccelForge {VERSION}: not installed ({fault})"
        if theirs is not None:
            better = beating(mine, theirs, race.close)
            found = [f"{race.shown}: AccelForge's {v} beats our front" for v in better]
            said += f", mappings: {len(theirs.values)}, of which {len(found)} beat ours"
            faults += found
        rows[race.shown] = cpu_seconds(mine.cpu, None if theirs is None else theirs.cpu, said)
    return rows, faults


def timed(action: Callable[[], pm.Front]) -> tuple[pm.Front, float, float]:
    """The front, CPU and wall seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    front = action()
    return front, time.process_time() - cpu, time.perf_counter() - wall


def ours(race: Race, forget: Callable[[], None]) -> Ran:
    """The median of some runs, none of which remembers another; every mapping is then evaluated again."""
    spec, bounds = race.problem()
    ran = []
    for _ in range(race.repeats):
        forget()
        ran.append(timed(lambda: pm.explore(spec, objectives=race.objectives, constraints=bounds)))
    front = ran[-1][0]
    if not front.complete or not len(front):
        raise AssertionError(f"{race.shown}: {front.notes}")
    confirm(front, len(front))
    values = tuple(p.values for p in front)
    return Ran(median(cpu for _, cpu, _ in ran), median(wall for _, _, wall in ran), values)


def confirm(front: pm.Front, count: int) -> int:
    """Evaluate at most `count` mappings, evenly apart on the front; AssertionError if one costs otherwise."""
    step = math.ceil(len(front) / count)
    chosen = front[::step]
    for point in chosen:
        report = pm.evaluate(point.spec)
        costs = report.costs.total_energy, float(report.costs.total_latency)
        told = point.energy, point.latency
        same = all(math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(told, costs, strict=True))
        if not same or not report.feasible:
            raise AssertionError(f"explore says {told}, evaluate {costs}")
        _ = point.report  # its peaks, too, are at most those that the search told
    return len(chosen)


def peer(race: Race) -> Ran:
    """AccelForge's mapper on the same case; raises NotInstalled."""
    text, settings = race.told()
    return searched_by_peer([text], race.objectives, settings, race.seconds)[0]


def searched_by_peer(
    texts: Sequence[str], objectives: Sequence[str], settings: Case, seconds: int
) -> tuple[Ran, ...]:
    """AccelForge's mapper on these specs, one after the other in one process that may take so many seconds;
    raises NotInstalled."""
    python = environment()
    settings = {k: float(v) if v == "inf" else v for k, v in settings.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given, out = folder / "settings.json", folder / "out.json"
        specs = [folder / f"spec-{i}.yaml" for i in range(len(texts))]
        for spec, text in zip(specs, texts, strict=True):
            spec.write_text(text, encoding="utf-8")
        given.write_text(json.dumps({"objectives": objectives, "mapper": settings}), encoding="utf-8")
        fault = run(python, HERE / "accelforge_search.py", given, out, *specs, seconds=seconds)
        if fault:
            raise NotInstalled(f"it does not run: {fault}")
        result = json.loads(out.read_text(encoding="utf-8"))
    return tuple(Ran(one["cpu"], one["wall"], tuple(map(tuple, one["values"]))) for one in result)


def beating(mine: Ran, theirs: Ran, close: float = CLOSE) -> list[tuple[float, ...]]:
    """Those of the peer's mappings that none of ours is at least as good as, in every objective."""

    def no_worse(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        return all(x <= y * (1 + close) for x, y in zip(a, b, strict=True))

    return [v for v in theirs.values if not any(no_worse(own, v) for own in mine.values)]


def peer_spec(case: Case) -> str:
    """The case in AccelForge's YAML. ValueError for keys that would be lost."""
    workload = case["workload"]
    understood("workload", workload, "ranks tensors bits_per_value einsums persistent".split())
    einsums = []
    for einsum in workload["einsums"]:
        understood(einsum["name"], einsum, "name inputs output copy".split())
        accesses = [
            {
                "name": tensor,
                "projection": dict(zip(workload["tensors"][tensor], map(str, indices), strict=True)),
                "output": tensor in einsum["output"],
                "bits_per_value": workload["bits_per_value"][tensor],
                "persistent": tensor in workload.get("persistent", ()),
            }
            for tensor, indices in {**einsum["inputs"], **einsum["output"]}.items()
        ]
        copy = bool(einsum.get("copy", False))
        einsums.append({"name": einsum["name"], "is_copy_operation": copy, "tensor_accesses": accesses})
    shape = {v: f"0 <= {v} < {size}" for v, size in workload["ranks"].items()}
    text = [f"workload: {json.dumps({'iteration_space_shape': shape, 'einsums': einsums})}"]
    text += ["arch:", "  nodes:"]
    text += [f"  - !{c['type'].capitalize()} {json.dumps(component(c))}" for c in case["arch"]]
    return "\n".join(text) + "\n"


def component(given: Case) -> Case:
    """One memory or compute unit as AccelForge reads it, without its type."""
    if given["type"] not in COMPONENT:
        raise ValueError(f"component {given['name']} has a type that the benchmark does not write")
    understood(given["name"], given, COMPONENT[given["type"]].split())
    result: Case = {"name": given["name"], "area": 0, "leak_power": 0}
    if given["type"] == "compute":
        action = {"name": "compute", "energy": given["energy_per_op"], "throughput": given["ops_per_cycle"]}
        return {**result, "actions": [action]}
    return {
        **result,
        "size": given["size_bits"],
        "tensors": {"keep": given["must_hold"], "may_keep": given["may_hold"]},
        "actions": [
            {
                "name": way,
                "energy": given[f"{way}_energy_per_bit"],
                "throughput": given[f"{way}_bits_per_cycle"],
            }
            for way in ("read", "write")
        ],
    }


def three_levels(shown: str, name: str, time_limit: float) -> dict[str, Row]:
    """The front of a case for three objectives with registers below its buffer, and how far it came.

    With two workers, so that wall seconds are what counts here.
    """
    case = case_of(name)
    *memories, compute = case["arch"]
    case["arch"] = [*memories, REGISTERS, compute]
    spec, bounds = spec_of(case), limits(case)
    front, cpu, wall = timed(
        lambda: pm.explore(
            spec, objectives=THREE, constraints=bounds, eps=1e-3, time_limit=time_limit, workers=2
        )
    )
    if not len(front):
        raise AssertionError(f"no mapping: {front.notes}")
    sampled = confirm(front, min(SAMPLE, len(front)))
    done = "the whole front" if front.complete else front.notes[0]
    said = f"no peer; {len(front)} mappings, {sampled} of them evaluated and equal"
    said += f"; CPU of the searching process {cpu:.1f} s; {done}"
    row: Row = {"value": round(wall, 3), "unit": "s", "peer": None, "ratio": None, "peer_name": said}
    return {f"explore {shown} on three memories, {', '.join(THREE)}, eps 1e-3, two workers": row}


def looked_at(shown: str, name: str) -> dict[str, Row]:
    """Combinations that the search looks at, beside the mappings that there are."""
    case = case_of(name)
    spec, bounds = spec_of(case), limits(case)
    front = pm.explore(spec, objectives=BOTH, constraints=bounds)
    looked = sum(stage.points for stage in front.found.stages)
    size = pm.mapspace(spec, bounds).size()
    return {
        f"combinations looked at, {shown}, {' and '.join(BOTH)}": {
            "value": float(looked),
            "unit": "",
            "peer": float(f"{size:.4g}"),
            "ratio": float(f"{looked / size:.3g}"),
            "peer_name": f"mappings in the space, counted ({len(front)} on the front)",
        }
    }
