"""One machine for several networks: the joint front, with limits of each, is that of every mapping on every
machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.cli.app import main
from polymodel.cost.costs import costs
from tests.faults import faults
from tests.hardware.small import small
from tests.hardware.test_codesign import CHAIN, SPEC, changed, literal_front
from tests.mapper.brute_evaluated import Listed

Figures = dict[str, float]
Given = dict[str, list[tuple[pm.Spec, int]]]
MATMUL = ("Z[m, n] = A[m, k] * B[k, n]",)
VECTOR = ("Z[m] = A[m, k] * B[k]",)


def every_mapping(spec: pm.Spec) -> list[tuple[pm.LoopTree, Any]]:
    """Every legal mapping of the only Einsum, listed node by node, with its counts."""
    found = []
    for tree in Listed(spec).trees():
        try:
            report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
        except pm.SpecError:
            continue
        found.append((tree, report.analysis))
    return found


def every_mapping_of(networks: Given, hardware: dict[str, list[float]]) -> dict[Any, Any]:
    """Those of every layer on every width of the array."""
    layers = [(name, i, spec) for name, some in networks.items() for i, (spec, _) in enumerate(some)]
    fanouts = hardware["F"]
    return {(name, i, f): every_mapping(spec.bind(F=f)) for name, i, spec in layers for f in fanouts}


def brute(
    networks: Given,
    hardware: dict[str, list[float]],
    weights: dict[str, float],
    objectives: tuple[str, ...],
    limits: dict[str, float],
    counted: dict[Any, Any],
    every: bool = False,
) -> list[tuple[float, ...]]:
    """Every machine, and on it every combination of mappings of all layers of all networks: those that none
    beats, or all of them."""
    points: set[tuple[float, ...]] = set()
    for values in product(*hardware.values()):
        symbols = dict(zip(hardware, values, strict=True))
        choices = []
        for name, layers in networks.items():
            for i, (spec, _) in enumerate(layers):
                bound = spec.bind(**symbols)
                mine = set()
                for tree, analysis in counted[name, i, symbols["F"]]:
                    cost = costs(Problem(bound.workload, bound.arch, tree), analysis)
                    if not cost.violations:
                        mine.add((cost.total_energy, float(cost.total_latency), cost.total_area))
                choices.append(sorted(mine))
        for picked in product(*choices):
            figures = figures_of(networks, weights, picked)
            if all(figures[n] <= most for n, most in limits.items()):
                points.add(tuple(figures[o] for o in objectives))
    return sorted(points) if every else literal_front(points)


def figures_of(networks: Given, weights: dict[str, float], picked: tuple[Any, ...]) -> Figures:
    found: Figures = {"energy": 0.0, "latency": 0.0, "area": picked[0][2]}
    rest = iter(picked)
    for name, layers in networks.items():
        mine = [(next(rest), n) for _, n in layers]
        for k, what in enumerate(("energy", "latency")):
            found[f"{what} of {name}"] = sum(costs[k] * n for costs, n in mine)
            found[what] += found[f"{what} of {name}"] * weights.get(name, 1)
        found[f"edp of {name}"] = found[f"energy of {name}"] * found[f"latency of {name}"]
    found["edp"] = found["energy"] * found["latency"]
    return found


def same(found: pm.Codesign, expected: list[tuple[float, ...]]) -> None:
    mine = np.array([[p.figures[o] for o in found.objectives] for p in found.points])
    every = np.array(expected)
    assert bool(len(mine)) == bool(len(every))
    for these, others in ((mine, every), (every, mine)) if len(mine) else ():
        near = np.isclose(these[:, None], others[None], rtol=1e-9, atol=0).all(axis=2)
        assert near.any(axis=1).all()


def kept_in(spec: pm.Spec, kept: str) -> pm.Spec:
    assert spec.raw_arch is not None
    return changed(spec, "GLB", tensors=spec.raw_arch.nodes[1].tensors.model_copy(update={"may_keep": kept}))


def drawn(seed: int, quick: bool) -> tuple[Any, ...]:
    """Two or three small networks, machines, weights, objectives, and figures with limits that cut into what
    there is."""
    pick = Random(seed)
    energy = pick.choice(["1.0e-12", "1.0e-14 * S", "2.0e-13 * sqrt(S)"])
    leak = pick.choice([0, "1.0e-4 * S"])
    names = ["one", "two", "three"][: 2 if quick else pick.choice((2, 2, 3))]
    kept = pick.choice(["A", "B", "Z"] if quick else ["A | Z", "A", "B | Z"])

    def layer() -> pm.Spec:
        wide = not quick and pick.random() < 0.3
        ranks = {n: pick.choice((2, 3)) for n in ("MNK" if wide else "MK")}
        spec = small(MATMUL if wide else VECTOR, ranks, energy=energy, leak=leak)
        return kept_in(spec, kept)

    several = not quick and len(names) == 2 and pick.random() < 0.4
    networks = {name: [(layer(), pick.randint(1, 2)) for _ in range(1 + several)] for name in names}
    hardware: dict[str, Any] = {
        "S": sorted(pick.sample([8, 16, 24, 32, 48, 64], 2)), "F": [2] if quick else [1, 2],
        "R": sorted(pick.sample([5e8, 1e9, 4e9], 2)),
    }  # fmt: skip
    weights = {n: pick.choice((0.5, 2, 3)) for n in names if pick.random() < 0.5}
    own = [f"{what} of {n}" for what in ("latency", "energy", "edp") for n in names]
    objectives = tuple(pick.sample(["energy", "latency", "area", "edp", *own], pick.randint(1, 3)))
    bounded = pick.sample(own, pick.randint(1, 3))
    return networks, hardware, weights, objectives, bounded, pick.uniform(0.2, 0.9)


def check(seed: int, quick: bool = False) -> bool:
    """Whether the limits leave something."""
    networks, hardware, weights, objectives, bounded, share = drawn(seed, quick)
    counted = every_mapping_of(networks, hardware)
    limits = {}
    for name in bounded:  # between the least and the most that any machine has
        values = sorted(x for (x,) in brute(networks, hardware, weights, (name,), {}, counted, every=True))
        limits[name] = values[int(share * (len(values) - 1) / 2)]
    found = pm.codesign(
        networks, hardware, weights=weights, objectives=objectives,
        limits=[f"{n} <= {m * (1 + 1e-9)!r}" for n, m in limits.items()],
    )  # fmt: skip
    within = {n: m * (1 + 1e-9) for n, m in limits.items()}
    same(found, brute(networks, hardware, weights, objectives, within, counted))
    return bool(len(found))


def test_networks_with_limits_of_their_own_are_those_of_every_mapping_on_every_machine() -> None:
    assert check(1, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_networks_are_those_of_every_mapping_on_every_machine(seed: int) -> None:
    check(seed)


def both() -> dict[str, Any]:
    return {
        "thin": [(small(VECTOR, {"M": 2, "K": 2}), 3), small(VECTOR, {"M": 2, "K": 3})],
        "fat": small(VECTOR, {"M": 4, "K": 8}),
    }


@pytest.mark.slow
def test_a_limit_of_each_network_is_one_limit_for_every_one() -> None:
    """Nothing of one network makes up for another; tables name the network whose limit is the nearest."""
    hardware: dict[str, Any] = {"S": [64], "F": [1, 2], "R": [2e7, 1e9]}
    free = pm.codesign(both(), hardware, objectives=["latency of each", "area"])
    assert free.objectives == ("latency of thin", "latency of fat", "area")
    most = sorted(r.least["latency of fat"] for r in free.rows)[1]
    limit = f"latency of each <= {most!r}"
    found = pm.codesign(both(), hardware, objectives=["energy", "area"], limits=[limit], weights={"thin": 2})
    one_by_one = {f"latency of {n}": most for n in ("thin", "fat")}
    again = pm.codesign(
        both(), hardware, objectives=["energy", "area"], limits=one_by_one, weights={"thin": 2}
    )
    assert found.front.equals(again.front)
    assert 0 < len(found) < len(found.rows)
    for point in found:
        for network in ("thin", "fat"):
            assert point.figures[f"latency of {network}"] <= most
        total = 2 * point.figures["energy of thin"] + point.figures["energy of fat"]
        assert point.figures["energy"] == pytest.approx(total, rel=1e-12, abs=0)
    first = found.front.iloc[0]
    shares = {n: found[0].figures[n] / most for n in one_by_one}
    assert first["nearest limit"] == max(shares, key=lambda n: shares[n])
    assert first["of it"] == pytest.approx(max(shares.values()))
    reasons = {r.reason for r in found.rows if r.reason}
    assert reasons == {f"no mapping keeps latency of thin <= {most:.15g}"}
    table = found.networks
    assert list(table["network"])[:2] == ["thin", "fat"]
    assert list(table["weight"])[:2] == [2, 1]
    assert list(found.layer_costs["network"])[:3] == ["thin", "thin", "fat"]
    assert list(found.layer_costs["times"])[:3] == [3, 1, 1]
    assert "2 networks" in found.title
    assert found.plot("latency of fat", "energy").get_xlabel() == "latency of fat (s)"
    bars = found.plot("layers")
    assert [t.get_text() for t in bars.get_yticklabels()] == ["thin Z", "thin Z", "fat Z"]
    widths = [n * energy for n, (energy, _) in zip(found.times, found[0].costs, strict=True)]
    np.testing.assert_allclose([b.get_width() for b in bars.patches], widths)
    assert "networks" not in dict(pm.codesign(small(VECTOR, {"M": 2, "K": 2}), {"S": [64]}).listed())


def in_blocks(spec: pm.Spec, *names: str) -> pm.Spec:
    """The spec with a block for each Einsum."""
    raw = spec.raw_workload
    assert raw is not None
    pairs = zip(raw.einsums, names, strict=True)
    einsums = tuple(e.model_copy(update={"block": name}) for e, name in pairs)
    return replace(spec, raw_workload=raw.model_copy(update={"einsums": einsums}))


def test_blocks_add_up_what_their_layers_cost() -> None:
    """A layer is of the block that it is given, else of that of its Einsums; of a fused pair of two blocks
    each has what is booked to its Einsum."""
    chain = in_blocks(small(CHAIN, {"M": 2, "K": 2, "N": 4, "L": 2}), "one", "two")
    rest = small(VECTOR, {"M": 2, "K": 2})
    networks = {"a": [chain, (chain.only("Z"), 2, "three"), (rest, 3)], "b": [(rest, 1, "one")]}
    found = pm.codesign(networks, {"S": [512]}, objectives=["energy"])
    rows = found.blocks[found.blocks["point"] == 0].set_index(["network", "block"])
    assert list(rows.index) == [*(("a", b) for b in ("one", "two", "three", "(no block)")), ("b", "one")]
    assert list(rows["Einsums"]) == [1, 1, 2, 3, 1]
    point = found[0]
    for figure in ("energy", "latency"):
        for network in "ab":
            total = point.figures[f"{figure} of {network}"]
            assert rows.loc[network][figure].sum() == pytest.approx(total, rel=1e-12, abs=0)
            shares = rows.loc[network][figure] / total
            np.testing.assert_allclose(rows.loc[network][f"part of the {figure}"], shares)
    summary = point.reports[0].summary.set_index("einsum")
    for block, einsum in (("one", "T"), ("two", "Z")):
        assert rows.loc["a", block]["energy"] == pytest.approx(summary.loc[einsum, "energy_J"], rel=1e-12)
        assert rows.loc["a", block]["latency"] == pytest.approx(summary.loc[einsum, "latency_s"], rel=1e-12)
    assert list(found.layer_costs["block"][:4]) == ["one, two", "three", "", "one"]
    bars = found.plot("blocks", "latency")
    assert [t.get_text() for t in bars.get_yticklabels()][2:4] == ["a three", "a (no block)"]
    np.testing.assert_allclose([b.get_width() for b in bars.patches], rows["latency"])


def test_equal_layers_of_several_blocks_are_searched_once() -> None:
    """One by one, and as specs; each counts in its own block."""
    both = in_blocks(small(CHAIN, {"M": 2, "K": 2, "N": 2, "L": 2}), "one", "two")
    found = pm.codesign([(both, 3)], {"S": [64]}, objectives=["energy"], layer_by_layer=True)
    assert (found.times, found.searches) == ((6,), 1)
    assert list(found.blocks["block"]) == ["one", "two"]
    assert list(found.blocks["Einsums"]) == [3, 3]
    assert list(found.blocks["part of the energy"]) == [0.5, 0.5]
    whole = pm.codesign([(both, 3, "all")], {"S": [64]}, objectives=["energy"], layer_by_layer=True)
    assert [(r[1], r[2]) for r in whole.table("blocks").rows] == [("all", 6)]
    apart = [in_blocks(small(VECTOR, {"M": 2, "K": 2}), name) for name in ("one", "two", "")]
    several = pm.codesign(apart, {"S": [64]}, objectives=["energy"])
    assert (len(several.work.specs), several.searches) == (3, 1)
    plain = pm.codesign(apart[2], {"S": [64]}, objectives=["energy"])
    assert "blocks" not in dict(plain.listed())
    with pytest.raises(pm.SpecError, match="no layer is of a block"):
        plain.plot("blocks")


@pytest.mark.slow
def test_layers_of_networks_are_einsums_one_by_one() -> None:
    chain = small(CHAIN, {"M": 4, "K": 4, "N": 4, "L": 4})
    asked: dict[str, Any] = {"objectives": ["energy", "latency of b"], "weights": {"a": 2}}
    found = pm.codesign({"a": chain, "b": chain.only("Z")}, {"S": [128, 256]}, layer_by_layer=True, **asked)
    apart = {"a": [(chain.only("T"), 2)], "b": chain.only("Z")}
    assert found.times == (2, 1)
    assert found.front.equals(pm.codesign(apart, {"S": [128, 256]}, **asked).front)


@pytest.mark.parametrize(
    ("asked", "code", "at", "named"),
    [
        ({"objectives": ["latency of slim"]}, "unknown-name", "objectives[0]", "slim"),
        ({"limits": ["latency of slim <= 1"]}, "unknown-name", "limits[0]", "slim"),
        ({"limits": ["latncy of thin <= 1"]}, "unknown-choice", "limits[0]", "latncy"),
        ({"limits": ["area of thin <= 1"]}, "unknown-choice", "limits[0]", ""),
        ({"limits": ["latency of thin >= 1"]}, "out-of-range", "limits[0]", ""),
        ({"limits": ["latency of thin <= 1 J"]}, "out-of-range", "limits[0]", ""),
        ({"weights": {"slim": 2}}, "unknown-name", "weights.slim", "slim"),
        ({"weights": {"thin": 0}}, "wrong-type", "weights.thin", ""),
        ({"weights": [1, 2]}, "wrong-type", "weights", ""),
        ({"layers": {"a b": small()}}, "invalid-name", "layers", ""),
        ({"layers": {"each": small()}}, "invalid-name", "layers", ""),
        ({"layers": {}}, "wrong-type", "", ""),
        ({"layers": {"a": [(small(), 0)]}}, "inconsistent-values", "layers", ""),
        ({"layers": {"a": "resnet"}}, "wrong-type", "", ""),
        ({"layers": [(small(), 1, 2)]}, "wrong-type", "layers", ""),
        ({"layers": {"a": small(), "b": small(energy="2.0e-12")}}, "inconsistent-values", "layers", ""),
        ({"layers": small(), "limits": ["latency of a <= 1"]}, "unknown-name", "limits[0]", "a"),
        ({"layers": small(), "weights": {"a": 1}}, "unknown-name", "weights.a", "a"),
    ],
)
def test_wrong_networks_say_what_to_give(asked: dict[str, Any], code: str, at: str, named: str) -> None:
    given = {"layers": both(), **asked}
    with faults(code, *named.split(), at=at):
        pm.codesign(given.pop("layers"), {"S": [128]}, **given)


def files(folder: Path) -> None:
    machine, _, workload = SPEC.partition("workload:")
    (folder / "machine.yaml").write_text(machine, encoding="utf-8")
    (folder / "one.yaml").write_text(f"workload:{workload}", encoding="utf-8")
    (folder / "two.yaml").write_text(f"workload:{workload.replace('M: 8', 'M: 2')}", encoding="utf-8")
    section = (
        "codesign:\n  hardware: {S: [128, 256]}\n  networks: {one: one.yaml, two: [two.yaml]}\n"
        "  weights: {two: 3}\n  objectives: [energy, area]\n  limits: {latency of each: 100 us}\n"
    )
    (folder / "asked.yaml").write_text(section, encoding="utf-8")


def test_a_section_and_the_command_name_networks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a section are those beside it, wherever it is read from."""
    files(tmp_path)
    of_section = pm.codesign(pm.load(tmp_path / "machine.yaml", tmp_path / "asked.yaml"))
    machine = tmp_path / "machine.yaml"
    specs = {n: pm.load(machine, tmp_path / f"{n}.yaml") for n in ("one", "two")}
    given = pm.codesign(
        specs, {"S": [128, 256]}, objectives=["energy", "area"], weights={"two": 3},
        limits={"latency of each": "100 us"},
    )  # fmt: skip
    assert of_section.front.equals(given.front)
    assert of_section.networks.equals(given.networks)
    monkeypatch.chdir(tmp_path)
    networks = ["--network", "one=one.yaml", "--network", "two=two.yaml", "--weight", "two=3"]
    asked = ["--objective", "energy", "--objective", "area", "--limit", "latency of each <= 100 us"]
    command = ["codesign", "machine.yaml", "--hardware", "S=128,256", *networks, *asked]
    assert main([*command, "--format", "csv"]) == 0
    assert capsys.readouterr().out == given.table("front").to_csv()
    assert main(["codesign", "machine.yaml", "asked.yaml", "--out", "out"]) == 0
    assert "latency of" in capsys.readouterr().out
    assert (tmp_path / "out" / "networks.csv").exists()


def test_a_section_says_how_often_layers_are_executed(tmp_path: Path) -> None:
    files(tmp_path)
    machine, asked = tmp_path / "machine.yaml", tmp_path / "asked.yaml"
    text = asked.read_text().replace("one: one.yaml", "one: {one.yaml: 2, two.yaml: 3}")
    asked.write_text(text.replace("100 us", "1 ms"), encoding="utf-8")
    one, two = (pm.load(machine, tmp_path / f"{n}.yaml") for n in ("one", "two"))
    given = pm.codesign(
        {"one": [(one, 2), (two, 3)], "two": two}, {"S": [128, 256]}, objectives=["energy", "area"],
        weights={"two": 3}, limits={"latency of each": "1 ms"},
    )  # fmt: skip
    found = pm.codesign(pm.load(machine, asked))
    assert found.front.equals(given.front)
    assert found.times == (2, 3, 1)
    for layers, code, at in (
        ("{}", "missing-value", ""),
        ("{two.yaml: 0}", "inconsistent-values", ".two.yaml"),
    ):
        asked.write_text(text.replace("{one.yaml: 2, two.yaml: 3}", layers), encoding="utf-8")
        with faults(code, at=f"codesign.networks.one{at}"):
            pm.codesign(pm.load(machine, asked))


def test_variables_and_symbols_go_to_the_networks_of_a_section_that_know_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path)
    text = (tmp_path / "two.yaml").read_text().replace("M: 2", "M: {{ ROWS }}").replace("N: 4", "N: COLUMNS")
    (tmp_path / "two.yaml").write_text("symbols: {COLUMNS: 4}\n" + text, encoding="utf-8")
    sources = tmp_path / "machine.yaml", tmp_path / "asked.yaml"
    spec = pm.load(*sources, ROWS=3, symbols={"COLUMNS": 2})
    sizes = [dict(s.workload.rank_sizes) for s in pm.codesign(spec, {"S": [128]}).layers]
    assert [(size["M"], size["N"]) for size in sizes] == [(8, 4), (3, 2)]
    command = ["codesign", *map(str, sources), "--hardware", "S=128"]
    assert main([*command, "--var", "ROWS=3", "--set", "COLUMNS=2"]) == 0
    capsys.readouterr()
    assert main([*command, "--var", "ROWS=3", "--var", "ROW=3", "--set", "COLUMN=2"]) == 2
    told = capsys.readouterr().err
    assert "no template uses the variable ROW\n" in told
    assert "COLUMN" in told


def test_faults_of_networks_of_a_section_are_told_together(tmp_path: Path) -> None:
    files(tmp_path)
    (tmp_path / "two.yaml").write_text((tmp_path / "machine.yaml").read_text(), encoding="utf-8")
    text = (tmp_path / "asked.yaml").read_text().replace("one.yaml", "none.yaml")
    (tmp_path / "asked.yaml").write_text(text, encoding="utf-8")
    spec = pm.load(tmp_path / "machine.yaml", tmp_path / "asked.yaml")
    with pytest.raises(pm.SpecError) as raised:
        pm.codesign(spec)
    told = " ".join(f"{d.message} {d.place.file}" for d in raised.value.diagnostics)
    assert "none.yaml" in told
    assert "network two has no `workload:`" in told
    assert "network two has an `arch:` of its own" in told
