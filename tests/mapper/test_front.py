"""`pm.explore`: the front is what `evaluate` says, loads back, and tells how complete it is."""

from __future__ import annotations

import _thread
import csv
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import polymodel as pm
from polymodel.mapper import budget
from polymodel.mapper.confirm import figures_of
from polymodel.mapper.records import Progress, Request
from polymodel.quantities import engineering
from tests.faults import faults
from tests.mapper.conftest import OBJECTIVES


@pytest.mark.slow
def test_every_point_evaluates_to_its_figures_and_none_beats_another(front: pm.Front) -> None:
    assert len(front) > 5
    assert front.complete
    for p in front:
        assert p.report.total_energy == p.energy
        assert p.report.total_latency == p.latency
        assert figures_of(p.report).buffers == p.found.buffers
        assert p.report.feasible
        assert p.found.confirmed
        assert p.figures is p.found
    values = [p.values for p in front]
    assert values == sorted(values)
    for a in values:
        assert not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in values)


def test_a_mapping_saves_and_loads_back_unchanged(front: pm.Front, spec: pm.Spec, tmp_path: Path) -> None:
    fused = next(p for p in front if p.fused)
    again = pm.load(
        "matmul_chain_2", "simple_two_level", fused.save(tmp_path / "m.yaml"), M=16, N0=8, N1=12, N2=10
    )
    assert again.mapping == fused.mapping == fused.spec.mapping
    assert pm.evaluate(again).total_energy == fused.energy
    saved = front.save(tmp_path / "all")
    assert {f.name for f in saved} >= {"front.csv", "front.parquet", "stages.csv", "mapping-0.yaml"}
    assert len(saved) == len(front) + 6
    assert (tmp_path / "all" / "front.txt").read_text(encoding="utf-8") == f"{front!r}\n"
    rows = pd.read_parquet(tmp_path / "all" / "front.parquet")
    pd.testing.assert_frame_equal(rows, front.frame, check_dtype=False)
    assert _columns_of(front, tmp_path / "all" / "front.csv") == set(front.exported().units)


def _columns_of(front: pm.Front, file: Path) -> set[str]:
    """Names of the columns of figures in a file, which are those of the frame."""
    read = pd.read_csv(file)
    ends = {"J": "_J", "s": "_s", "J s": "_J_s", "bit": "_bits"}
    for name, unit in front.frame.attrs["units"].items():
        assert read[name + ends[unit]].tolist() == front.frame[name].tolist()
    return {n + ends[u] for n, u in front.frame.attrs["units"].items()}


def test_the_frame_has_units_buffers_and_what_is_fused(front: pm.Front) -> None:
    frame = front.frame
    units = {"energy": "J", "latency": "s", "edp": "J s", "working_set:GLB": "bit"}
    assert frame.attrs["units"] == units
    assert frame["working_set:GLB"].tolist() == [p.buffers["GLB"] for p in front]
    assert frame["mapping"].tolist() == list(range(len(front)))
    for p, fused in zip(front, frame["fused"], strict=True):
        in_dram = any(t.component == "DRAM" and t.tensor == "T1" for t in p.report.analysis.traffic)
        assert fused == ("" if in_dram else "T1")
    assert set(frame["fused"]) == {"", "T1"}
    loops = [loop for loop in frame["fused_loops"] if loop]
    assert loops
    assert all(loop.startswith("Matmul1-Matmul2: ") for loop in loops)
    assert front.stages["of"].tolist() == ["Matmul1", "Matmul2", "join Matmul1", "join Matmul2"]
    assert (front.stages["points"] >= front.stages["kept"]).all()


def test_indices_and_the_best(front: pm.Front) -> None:
    assert front[0].number == 0
    assert front[-1].number == len(front) - 1
    assert [p.number for p in front[:2]] == [0, 1]
    with pytest.raises(IndexError, match="they run from 0 to"):
        front[len(front)]
    assert front.best() is front[0]
    assert (
        front.best("edp").edp
        == front.best("energy_delay").energy_delay
        == min(p.energy * p.latency for p in front)
    )
    assert front.best("buffer").buffers["GLB"] == front.best("buffer:GLB").buffers["GLB"]
    assert front.best("buffer").value("buffer") == min(p.buffers["GLB"] for p in front)
    with faults("unknown-choice", "bufer", at=""):
        front.best("bufer")


@pytest.mark.slow
def test_the_least_of_another_figure_is_not_promised(spec: pm.Spec) -> None:
    alone = pm.explore(spec, objectives="energy")
    assert len(alone) == 1
    with faults("unknown-choice", "latency", at="") as caught:
        alone.best("latency")
    assert "explore with objectives=[..., 'latency']" in str(caught.value)
    with faults("wrong-count", at=""):
        alone.plot()
    product = pm.explore(spec, objectives="energy_delay")
    both = pm.explore(spec)
    assert product.objectives == ("edp",)
    assert product.best().edp == both.best("edp").edp


def test_what_is_shown(front: pm.Front) -> None:
    text = repr(front)
    assert text.startswith(f"Front over energy, latency, working_set:GLB: {len(front)} mappings, in ")
    assert text.splitlines()[1].split() == [
        "mapping",
        "energy",
        "latency",
        "working",
        "set:GLB",
        "fused",
        "fused",
        "loops",
    ]
    assert "no memory inside the backing storage is bounded" not in text
    assert engineering(front[0].energy, "J") in text
    assert "exact: no valid mapping of the mapspace (docs/explore.md says what it leaves out; tile" in text
    html = front._repr_html_()
    assert 'title="intermediates that never reach the backing storage"' in html
    assert html.count("<tr>") == min(len(front), 20) + 1
    assert "LoopTree" in repr(front[0])
    assert "<svg" in front[0]._repr_html_()


@pytest.mark.slow
def test_eps_thins_and_states_the_gap(front: pm.Front, spec: pm.Spec) -> None:
    thin = pm.explore(spec, objectives=OBJECTIVES, eps=0.5)
    assert 0 < len(thin) < len(front)
    assert "within a factor of 1.5 in every objective" in repr(thin)
    for p in front:
        assert any(all(b <= 1.5 * a for a, b in zip(p.values, q.values, strict=True)) for q in thin), p.values


@pytest.mark.slow
def test_constraints_as_dict_limits_and_section(spec: pm.Spec, tmp_path: Path) -> None:
    whole = pm.explore(spec, objectives="energy")
    unfused = pm.explore(spec, objectives="energy", constraints={"unfused": "T1"})
    assert whole[0].fused == ("T1",)
    assert unfused[0].fused == ()
    assert unfused[0].energy > whole[0].energy
    limits = pm.explore(spec, objectives="energy", constraints=pm.Limits(unfused=frozenset({"T1"})))
    assert limits[0].energy == unfused[0].energy
    section = tmp_path / "wanted.yaml"
    section.write_text("explore: {objectives: [energy, buffer], unfused: Intermediates, eps: 1e-3}\n")
    read = pm.load("matmul_chain_2", "simple_two_level", section, M=16, N0=8, N1=12, N2=10)
    found = pm.explore(read)
    assert found.objectives == ("energy", "working_set:GLB")
    assert found.request.eps == 1e-3
    assert found.best().energy == unfused[0].energy
    assert (
        pm.explore(read, objectives="energy", constraints={"unfused": "Nothing"})[0].energy == whole[0].energy
    )


@pytest.mark.slow
def test_memories_narrow_the_rules_of_the_architecture(spec: pm.Spec) -> None:
    for rule in ({"bypass": "weight"}, {"may_keep": "~weight"}):
        found = pm.explore(spec, objectives="energy", constraints={"memories": {"GLB": rule}})
        held = {t.tensor for t in found[0].report.analysis.traffic if t.component == "GLB"}
        assert held
        assert not held & {"W0", "W1"}
    kept = pm.explore(spec, objectives="buffer", constraints={"memories": {"GLB": {"keep": "weight"}}})
    assert {"W0", "W1"} <= {t.tensor for t in kept[0].report.analysis.traffic if t.component == "GLB"}
    assert kept[0].buffers["GLB"] > 0
    assert pm.explore(spec, objectives="buffer")[0].buffers["GLB"] == 0


def test_nothing_fits(spec: pm.Spec) -> None:
    rule = {"memories": {"GLB": {"keep": "All"}}, "max_fused_loops": 0, "unfused": "T1"}
    small = pm.load("matmul_chain_2", _with_buffer(7), M=16, N0=8, N1=12, N2=10)
    found = pm.explore(small, constraints=rule)
    assert len(found) == 0
    assert found.diagnosis is not None
    assert [(o.constraint, o.level, o.einsum, o.need, o.have) for o in found.diagnosis.obstacles] == [
        ("capacity", "GLB", "Matmul1", 24, 7),
        ("capacity", "GLB", "Matmul2", 24, 7),
    ]
    assert found.diagnosis.text == found.reason
    assert "no valid mapping: " in repr(found)
    assert "no valid mapping" in found._repr_html_()
    assert found.frame.empty
    with faults("no-solution", "Matmul1", "GLB", at="") as caught:
        found.best()
    assert "a mapping exists if the size of GLB is 24 bits instead of 7" in str(caught.value)
    wider = pm.load("matmul_chain_2", _with_buffer(24), M=16, N0=8, N1=12, N2=10)
    assert len(pm.explore(wider, constraints=rule)) > 0
    with pytest.raises(IndexError, match="the front is empty"):
        found[0]
    alone = pm.explore(small, objectives="energy", constraints=rule)
    with faults("no-solution", "Matmul1", "GLB", at=""):
        alone.plot()


def test_an_empty_front_names_what_the_user_wrote(spec: pm.Spec) -> None:
    """`bypass` of an exploration is a rule on what a memory may keep."""
    rule = {"memories": {"GLB": {"bypass": "All"}}, "fuse": "T1"}
    found = pm.explore(spec, objectives="energy", constraints=rule)
    lines = found.reason.split("\n")
    what = "Einsum Matmul1: may_keep of GLB (T1), narrowed by `bypass: All`, rules out "
    assert any(line.startswith(what) for line in lines)
    assert "a mapping exists if GLB may keep T1 (`bypass: All` rules it out)" in lines
    assert "a mapping exists if T1 need not be fused" in lines
    forced = {"memories": {"GLB": {"keep": "W0"}}}
    small = pm.load("matmul_chain_2", _with_buffer(7), M=16, N0=8, N1=12, N2=10)
    found = pm.explore(small, objectives="energy", constraints=forced)
    assert "a mapping exists if GLB need not keep W0 (`may_keep` it instead of `keep: W0`)" in found.reason


def _with_buffer(bits: int) -> dict[str, object]:
    actions = [{"name": n, "energy": 1e-12, "throughput": 1e9} for n in ("read", "write")]
    return {
        "arch": {
            "nodes": [
                {"type": "Memory", "name": "DRAM", "tensors": {"keep": "~Intermediates", "may_keep": "All"},
                 "actions": actions},
                {"type": "Memory", "name": "GLB", "size": bits, "actions": actions},
                {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-13}]},
            ]
        }
    }  # fmt: skip


def test_a_time_limit_says_what_was_not_searched(spec: pm.Spec) -> None:
    found = pm.explore(spec, time_limit=1e-9)
    assert not found.complete
    assert "the time limit of 1e-09 s was reached" in repr(found)
    assert "not searched: " in repr(found)
    assert not found.interrupted
    assert not replace(found, found=replace(found.found, stages=()))._headline().endswith("looked at)")


def test_files_say_that_they_are_a_part(front: pm.Front) -> None:
    """In a column, as `confirmed` is told."""
    part = replace(front, found=replace(front.found, complete=False, stages=()), interrupted=True)
    rows = list(csv.DictReader(part.to_csv().splitlines()))
    assert [r["complete"] for r in rows] == ["False"] * len(front)
    assert "complete" not in front.to_csv().splitlines()[0].split(",")
    assert "looked at" not in repr(part)


def test_the_buffer_of_a_machine_without_bounds_is_named() -> None:
    names = ("DRAM", "GLB", "RF")
    memories = [{"type": "Memory", "name": n, "tensors": {"keep": "All"}} for n in names]
    machine = {"arch": {"nodes": [*memories, {"type": "Compute", "name": "MAC"}]}}
    spec = pm.load("matmul", machine, M=4, K=2, N=2)
    found = pm.explore(spec, objectives="buffer")
    assert "no memory inside the backing storage is bounded: `working_set` is that of RF" in repr(found)
    assert "name another one as `working_set:GLB`" in repr(found)
    assert found[0].value("buffer") == found[0].buffers["RF"]
    assert "is bounded" not in repr(pm.explore(spec, objectives="buffer:GLB"))


def test_ctrl_c_returns_what_there_is(spec: pm.Spec) -> None:
    seen: list[Progress] = []

    def interrupt(p: Progress) -> None:
        seen.append(p)
        if p.best is not None and not any(q.best is not None for q in seen[:-1]):
            _thread.interrupt_main()

    found = pm.explore(spec, progress=interrupt)
    assert found.interrupted
    assert not found.complete
    assert len(found) > 0
    assert "interrupted, so that there may be better mappings" in repr(found)
    assert found[0].report.total_energy == found[0].energy
    assert seen[-1].of == "evaluate"


@pytest.mark.slow
def test_a_keyboard_interrupt_of_the_progress_function(spec: pm.Spec) -> None:
    def interrupt(p: Progress) -> None:
        if p.best is not None and p.of != "evaluate":
            raise KeyboardInterrupt

    found = pm.explore(spec, progress=interrupt)
    assert found.interrupted
    assert len(found) > 0


def test_progress_tells_the_best_so_far(spec: pm.Spec) -> None:
    seen: list[Progress] = []
    found = pm.explore(spec, objectives="energy", progress=seen.append)
    assert [p.done <= p.total for p in seen] == [True] * len(seen)
    assert seen[-1].best == pytest.approx(found[0].energy, rel=1e-12)


@pytest.mark.slow
def test_progress_moves_within_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first look at an Einsum on, and also where no step of the search is done."""
    monkeypatch.setattr(budget, "REPORT_EVERY", 0.0)
    seen: list[Progress] = []
    chain = pm.load("matmul_chain_3", "simple_two_level")
    found = pm.explore(chain, objectives="energy", progress=seen.append)
    looked = [p.looked for p in seen if p.of != "evaluate"]
    assert looked == sorted(looked)
    begun = [p for p in seen if not p.done]
    told = {p.of for p in begun}
    for name in (e.name for e in chain.workload):
        assert told & {f"first guess, {name}", f"first guess, join {name}", f"bounds of {name}"}
    assert "bounds of whole mappings" in told
    assert len({p.looked for p in begun}) > 20
    quiet = pm.explore(chain, objectives="energy")
    assert list(quiet.frame["energy"]) == list(found.frame["energy"])
    assert quiet.stages.drop(columns="seconds").equals(found.stages.drop(columns="seconds"))


def test_more_steps_than_foreseen_are_no_more_than_all() -> None:
    seen: list[Progress] = []
    watch = budget.Watch(Request(progress=seen.append), 0.0, 2)
    for step in ("Matmul1", "Matmul2", "out", "out"):
        watch.finish_step(step)
    assert [(p.done, p.total) for p in seen] == [(1, 2), (2, 2), (3, 4), (4, 4)]


def test_live_memories_are_told() -> None:
    machine = _with_buffer(4096)
    machine["arch"]["nodes"][1]["allocation"] = "live"  # type: ignore[index]  # plain data
    found = pm.explore(pm.load("conv1d", machine), objectives=("energy", "buffer"), eps=0.1)
    assert "GLB has `allocation: live`, of which the search counts a bound" in repr(found)
    assert all(p.found.confirmed for p in found)


@pytest.mark.slow
def test_variables_searched_as_one_below_a_fused_loop_over_one_of_them() -> None:
    """p and c of Z are searched as one variable; an idle fanout stands above the fused loop over c. The tree
    divided p there, and had another energy than the search."""
    array = {"name": "X", "fanout": 3, "may_reuse": "T | A | V"}
    compute = {"name": "compute", "energy": 1.0, "throughput": 1e9}
    nodes = [
        _memory("DRAM", 8.0),
        _memory("GLB", 2.0, size=48),
        {"type": "Container", "name": "PE", "spatial": [array]},
        _memory("RF", 1.0, size=1600),
        {"type": "Compute", "name": "MAC", "actions": [compute]},
    ]
    workload = {
        "rank_sizes": {"P": 6, "C": 2, "R": 2, "Q": 1, "N": 7},
        "bits_per_value": {"All": 8},
        "einsums": ["T[p, c] = A[N=p+r, c] * W[r]", "Z[p, c] = T[p, c] * V[q]"],
    }
    found = pm.explore(pm.load({"arch": {"nodes": nodes}, "workload": workload}))
    for point in found:
        assert point.report.total_energy == point.energy


def _memory(name: str, energy: float, **others: object) -> dict[str, object]:
    """Accesses cost `energy` per bit, in either direction."""
    actions = [{"name": way, "energy": energy, "throughput": 1e9} for way in ("read", "write")]
    return {"type": "Memory", "name": name, "actions": actions, **others}


def test_cycles_where_all_that_computes_has_one_clock() -> None:
    def machine(*clocks: float | None) -> dict[str, object]:
        glb = {"type": "Memory", "name": "GLB", "size": 4096, "tensors": {"may_keep": "All"}}
        dram = {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}}
        rate = {"name": "compute", "throughput": 1e9}
        units = [
            {"type": "Compute", "name": f"U{i}", "actions": [rate], **({"clock": c} if c else {})}
            for i, c in enumerate(clocks)
        ]
        return {"arch": {"nodes": [dram, glb, *units]}}

    found = pm.explore(pm.load("matmul", machine(5e8), M=2, N=2, K=2), objectives="latency")
    assert found.frame["cycles"].tolist() == [5e8 * p.latency for p in found] == [4.0]
    assert found.best().report.table("summary").column("cycles")[-1] == 4.0
    assert found.frame.attrs["units"]["cycles"] == "cycle"
    for clocks in ((None,), (5e8, 1e9)):
        assert "cycles" not in pm.explore(pm.load("matmul", machine(*clocks), M=2, N=2, K=2)).frame
