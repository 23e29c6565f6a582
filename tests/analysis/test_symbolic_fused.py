"""Closed forms of fused chains with inferred producers: symbolic = enumerate, forms = SymPy = numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings

import polymodel as pm
from benchmarks.small import chain as chain_of_matmuls
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.layout import under_policy
from polymodel.analysis.symbolic.occupancy import _reserved_phases, _Shared
from polymodel.analysis.symbolic.render import Renderer
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.checks import check_extents
from polymodel.mapping.looptree import ties
from polymodel.mapping.resolve import ResolvedMapping
from polymodel.reuse import Reuse
from polymodel.spec.faults import Faults
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.analysis.test_symbolic import POLICIES, named
from tests.conv_pair import COLUMNS, HOLD, ROWS, pair_text
from tests.layers import fused_layers
from tests.separable import separable_problems


def inferred(problem: Problem) -> bool:
    kinds = (t for e in problem.tree.einsums for t in ties(problem.cascade, problem.tree, e).values())
    return "inferred" in kinds


def run_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(separable_problems(), POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        fused = inferred(problem)
        tally["fused"] += fused
        try:
            ours = SYMBOLIC.analyse(problem, reuse=reuse)
            referee = REFEREE.analyse(problem, reuse=reuse)
        except Refused:
            return
        tally["closed"] += fused
        found = differences(ours, referee)
        assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally


def test_fused_chains_agree_with_the_referee() -> None:
    tally = run_many(30)
    assert tally["closed"] > 0.2 * tally["fused"] > 3, tally


@pytest.mark.slow
def test_fused_chains_agree_with_the_referee_at_length() -> None:
    tally = run_many(10_000)
    assert tally["closed"] > 0.2 * tally["fused"] > 100, tally


@settings(max_examples=60, **SETTINGS)
@given(separable_problems(), POLICIES)
def test_forms_in_symbols_give_the_numbers(problem: Problem, reuse: Reuse | None) -> None:
    """Symbols for all tiles: forms and SymPy expressions at their values are the numbers.

    Expressions take tiles to be at most as large as what encloses them, as specs are checked to be.
    """
    faults = Faults()
    check_extents(ResolvedMapping(problem.tree), problem.cascade, problem.hierarchy, faults)
    assume(not len(faults))
    tree, values = named(problem.tree)
    try:
        plain = SYMBOLIC.analyse(problem, reuse=reuse)
        open_ = closed_counts(replace(problem, tree=tree), reuse=reuse)
    except NotSeparable:
        return
    assert not differences(open_.at(values), plain), drawing(problem)
    renderer = Renderer(open_.chains)
    at = {renderer.symbols[name]: value for name, value in values.items()}
    cells: list[Any] = [*open_.buffets, *open_.traffic[:4], *open_.compute]
    for form in (f for cell in cells for f in vars(cell).values() if isinstance(f, Form)):
        assert renderer.form(form).subs(at) == form.at(values), (form, values)


def fused_layers_agree(count: int, seed: int = 4, first: float = 0) -> float:
    """Compare `count` random mappings of small layers; the share that has closed forms.

    `first`: how often a loop has a first tile of its own.
    """
    pick, closed = Random(seed), 0
    for _ in range(count):
        problem = fused_layers(pick, first)
        try:
            ours = SYMBOLIC.analyse(problem)
            referee = REFEREE.analyse(problem)
        except Refused:
            continue
        closed += 1
        found = differences(ours, referee)
        assert not found, "\n".join([*found, drawing(problem)])
    return closed / count


@pytest.mark.slow
def test_fused_layers_agree_with_the_referee() -> None:
    assert fused_layers_agree(24) > 0.6


@pytest.mark.slow
def test_fused_layers_agree_with_the_referee_at_length() -> None:
    assert fused_layers_agree(20_000) > 0.6


def problem_of(folder: Path, nodes: str, side: int = 8) -> Problem:
    text = pair_text(nodes, side=side)
    file = folder / "pair.yaml"
    file.write_text(text)
    spec = pm.load(str(file))
    assert spec.template is not None
    return Problem(spec.workload, spec.arch, spec.template)


OPEN_ROWS, OPEN_COLUMNS = ROWS.replace("4}", "TP}"), COLUMNS.replace("4}", "TQ}")


@pytest.mark.parametrize(
    "nodes",
    [
        OPEN_ROWS + HOLD.replace("POLICY", "refill") + OPEN_COLUMNS,
        OPEN_ROWS + HOLD.replace("POLICY", "slide") + OPEN_COLUMNS,
        OPEN_ROWS + OPEN_COLUMNS + HOLD.replace("POLICY", "refill"),
        OPEN_ROWS + OPEN_COLUMNS + HOLD.replace("POLICY", "slide"),
        HOLD.replace("POLICY", "refill") + OPEN_ROWS + OPEN_COLUMNS,
    ],
    ids=["rows again", "rows kept", "windows again", "columns kept", "all kept"],
)
def test_rows_and_columns_as_symbols(tmp_path: Path, nodes: str) -> None:
    """Two 3x3 layers at some tiles of 8 x 8, imperfect ones too: what the exact engine counts."""
    found = closed_counts(problem_of(tmp_path, nodes))
    assert set(found.symbols) == {"TP", "TQ"}
    for tp, tq in ((1, 1), (2, 4), (3, 5), (4, 4), (5, 3), (7, 8), (8, 8)):
        at = nodes.replace("TP", str(tp)).replace("TQ", str(tq))
        assert not differences(found.at({"TP": tp, "TQ": tq}), EXACT.analyse(problem_of(tmp_path, at)))


def test_the_halo_in_sympy(tmp_path: Path) -> None:
    """Rows made again: 9 multiplications for each of (10 rows) x (8 + 2 columns per tile) elements of F2."""
    import sympy

    nodes = OPEN_ROWS + HOLD.replace("POLICY", "refill")
    found = closed_counts(problem_of(tmp_path, nodes))
    renderer = Renderer(found.chains, "divides")
    tile = renderer.symbols["TP"]
    assert sympy.simplify(renderer.form(found.compute[0].operations) - 9 * 10 * (8 + 2 * 8 / tile)) == 0


@pytest.mark.parametrize(
    "nodes",
    [
        OPEN_ROWS + OPEN_COLUMNS + HOLD.replace("POLICY", "keep_previous"),
        OPEN_ROWS + "  - !Temporal {rank_variable: r2, tile_shape: 1}\n" + HOLD.replace("POLICY", "refill"),
    ],
    ids=["a window less a corner", "both variables of a rank are tiled"],
)
def test_what_executes_is_listed_where_it_is_no_product_of_intervals(tmp_path: Path, nodes: str) -> None:
    found = closed_counts(problem_of(tmp_path, nodes))
    for tp, tq in ((2, 4), (3, 5), (8, 8)):
        values = {s: {"TP": tp, "TQ": tq}[s] for s in found.symbols}
        at = nodes.replace("TP", str(tp)).replace("TQ", str(tq))
        assert not differences(found.at(values), EXACT.analyse(problem_of(tmp_path, at)))


FAR = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Memory {name: GLB, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 2, may_reuse: All}]}
  - !Memory {name: RF, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 0, throughput: 1}]}
workload:
  rank_sizes: {P0: 10, P1: 9, R1: 2, P2: 8, R2: 2, P3: 7, R3: 2, P4: 6, R4: 2}
  bits_per_value: {All: 8}
  einsums:
  - "T1[p1] = T0[P0=p1 + r1] * W1[r1]"
  - "T2[p2] = T1[P1=p2 + r2] * W2[r2]"
  - "T3[p3] = T2[P2=p3 + r3] * W3[r3]"
  - "T4[p4] = T3[P3=p4 + r4] * W4[r4]"
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W1, W2, W3, W4, T4]}
  - !Spatial {rank_variable: p4, tile_shape: 3, component: PE, name: X}
  - !Storage {component: RF, tensors: [T1, T2]}
  - !Sequential
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: MAC}]}
    - !Nested {nodes: [!Compute {einsum: T2, component: MAC}]}
    - !Nested
      nodes:
      - !Temporal {rank_variable: p4, tile_shape: 1}
      - !Storage {component: RF, tensors: [T3]}
      - !Sequential
        nodes:
        - !Nested {nodes: [!Compute {einsum: T3, component: MAC}]}
        - !Nested {nodes: [!Compute {einsum: T4, component: MAC}]}
"""


def test_loops_of_a_branch_decide_what_executes_two_branches_before_it(tmp_path: Path) -> None:
    """T1 is made for T2, of which T3 reads at each step of the loop inside its own branch."""
    file = tmp_path / "far.yaml"
    file.write_text(FAR, encoding="utf-8")
    spec = pm.load(file)
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    ours = SYMBOLIC.analyse(problem)
    assert [c.operations for c in ours.compute] == [2 * 12, 2 * 10, 2 * 12, 12]
    assert not differences(ours, REFEREE.analyse(problem))


WITHIN = """\
  rank_sizes: {P0: 7, R1: 2, P1: 6, R2: 3, P2: 4}
  bits_per_value: {All: 8}
  einsums:
  - "T1[p1] = T0[P0=p1 + r1] * W1[r1]"
  - "T2[p2] = T1[P1=p2 + r2] * W2[r2]"
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W1, W2, T2]}
  - !Spatial {rank_variable: r2, tile_shape: 3, component: PE, name: X}
  - !Temporal {rank_variable: p2, tile_shape: 2}
  - !Spatial {rank_variable: p2, tile_shape: 1, component: PE, name: X}
  - !Storage {component: RF, tensors: [T1], reuse: slide}
  - !Sequential
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: MAC}]}
    - !Nested {nodes: [!Compute {einsum: T2, component: MAC}]}
"""


def test_instances_keep_what_they_have_made_below_more_loops_in_space_than_in_time(tmp_path: Path) -> None:
    """Windows of 3 values of T1 at 0 and 2 in one instance, at 1 and 3 in the other: each makes 5 values."""
    file = tmp_path / "instances.yaml"
    file.write_text(FAR[: FAR.index("  rank_sizes")] + WITHIN, encoding="utf-8")
    spec = pm.load(file)
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    ours = SYMBOLIC.analyse(problem)
    assert [c.operations for c in ours.compute] == [2 * 10, 12]
    assert not differences(ours, REFEREE.analyse(problem))


def test_what_may_be_there_grows_with_the_cascade_where_einsums_share_no_loop() -> None:
    """Each Einsum looks at its own buffets and at those between two uses, and all at one sum of what is
    reserved in the backing storage: twice the Einsums take twice the steps."""

    def looked_at(length: int) -> tuple[int, int]:
        spec = chain_of_matmuls(length)
        layout = under_policy(Problem(spec.workload, spec.arch, spec.mapping), None)
        known = _Shared(layout)
        phases = {
            id(_reserved_phases(known, e, "DRAM")): _reserved_phases(known, e, "DRAM")
            for e in layout.problem.tree.einsums
        }
        return sum(len(b) for of in known.present.values() for b in of.values()), len(phases)

    counts = [looked_at(length) for length in (5, 10, 20)]
    assert counts == [(6 * length, 1) for length in (5, 10, 20)]
