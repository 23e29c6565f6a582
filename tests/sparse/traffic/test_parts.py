"""Mergers, caches, blocks, tables, and everything that is refused or wrong."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import yaml

from polymodel.errors import SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic import CascadeTraffic, traffic
from polymodel.sparse.traffic.replacement import Accesses, LinesMoved, lines_moved
from polymodel.sparse.traffic.units import merge_steps
from polymodel.spec.teaal import read_teaal
from tests.faults import faults, refused
from tests.sparse.traffic import data
from tests.sparse.traffic.oracle_parts import merges
from tests.sparse.traffic.specs import as_cache, random_spec

SIZES = {"K": 5, "M": 4, "N": 6}


def tensors(seed: int = 0, density: float = 0.5) -> dict[str, SparseTensor]:
    rng = Random(seed)
    found = {}
    for name, ranks in (("A", "KM"), ("B", "KN")):
        shape = [SIZES[r] for r in ranks]
        points = {
            (i, j): rng.randint(1, 9)
            for i in range(shape[0])
            for j in range(shape[1])
            if rng.random() < density
        }
        found[name] = data.tensor(name, ranks, SIZES, points)
    return found


def changed(name: str, *changes: tuple[str, str]) -> str:
    text = data.design(name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def run(text: str, given: dict[str, SparseTensor] | None = None, **options: object) -> CascadeTraffic:
    symbols = {f"{r}{i}": n for r in "KMN" for i, n in ((1, 4), (0, 2))}
    return traffic(read_teaal(text), given or tensors(), symbols=symbols, **options)


@pytest.mark.parametrize("inputs", [64, "inf"])
@pytest.mark.parametrize("radix", [2, 3, 64, "inf"])
@pytest.mark.parametrize("seed", range(8))
def test_mergers(seed: int, radix: int | str, inputs: int | str) -> None:
    rng = Random(seed)
    sizes = {"M": rng.randint(1, 3), "K": rng.randint(1, 12), "N": rng.randint(1, 12)}
    points = {
        (m, k, n): 1
        for m in range(sizes["M"])
        for k in range(sizes["K"])
        for n in range(sizes["N"])
        if rng.random() < 0.4
    }
    given = data.tensor("T", "MKN", sizes, points)
    bound = {"init-ranks": ["M", "K", "N"], "final-ranks": ["M", "N", "K"]}
    slow = merges(points, ["M", "K", "N"], bound, {"comparator_radix": radix, "inputs": inputs})
    ways = float("inf") if radix == "inf" else radix
    assert merge_steps(given, "MKN", "MNK", ways, inputs != "inf") == slow


def test_a_swap_of_the_outer_ranks_and_none() -> None:
    given = data.tensor("T", "KMN", {"K": 2, "M": 3, "N": 2}, {(0, 1, 0): 1, (0, 2, 1): 1, (1, 1, 1): 1})
    # Lists 1 2 and 1: two lists and three elements.
    assert merge_steps(given, "KMN", "MKN", 64, True) == 5
    assert merge_steps(given, "KMN", "KMN", 64, True) == 0
    with refused("unsupported-binding"):
        merge_steps(given, "KMN", "NMK", 64, True)


def test_a_cache_that_is_too_small_is_refused() -> None:
    lines = run(data.design("gamma")).einsum("T").memory("MainMemory").of("B").read // 64
    exact = run(changed("gamma", ("depth: 393216", f"depth: {lines}")))
    assert exact.metrics() == run(data.design("gamma")).metrics()
    with refused("unsupported-memory", "FiberCache"):
        run(changed("gamma", ("depth: 393216", f"depth: {lines - 1}")))
    small = run(changed("gamma", ("depth: 393216", "depth: 2")), replacement="lru")
    assert small.einsum("T").memory("MainMemory").of("B").read > lines * 64


def test_what_a_full_cache_drops_by_hand() -> None:
    """0 1 2 0 1 2 in two lines: the least recently used one is always the next. With the furthest next use 2
    takes the place of 1, and 1 that of 0. Line 0 is written first and last, so `lru` has two stays of it."""
    time = (np.arange(6),)
    write = np.array([True, False, False, True, False, False])
    accesses = Accesses(np.array([0, 1, 2, 0, 1, 2]), time, write)
    assert lines_moved([accesses], 2, "lru") == [LinesMoved(4, 2)]
    assert lines_moved([accesses], 2, "optimal") == [LinesMoved(3, 1)]
    inputs = Accesses(accesses.line, time)
    assert [lines_moved([inputs], 2, policy)[0].read for policy in ("lru", "optimal")] == [6, 4]


def test_whole_subtrees_in_a_full_cache_are_refused() -> None:
    spec, _, _ = random_spec(0)
    as_cache(spec, 1)
    (bound,) = (s["bindings"] for s in spec["bindings"]["Z"] if s.get("component") == "Outer")
    bound[0]["style"] = "eager"
    full = {
        t: data.tensor(t, r, SIZES, {(i, j): 1 for i in range(4) for j in range(4)})
        for t, r in (("A", "KM"), ("B", "KN"))
    }
    with refused("unsupported-memory"):
        traffic(read_teaal(yaml.safe_dump(spec)), full, replacement="optimal")


def test_rows_hold_every_number_once() -> None:
    found = run(data.design("outerspace"))
    rows = list(found.rows())
    assert {r["label"] for r in rows} == {"exact"}
    bits = sum(
        (r["read_bits_or_count"] or 0) + (r["write_bits"] or 0)
        for r in rows
        if r["component"] == "MainMemory"
    )
    assert bits == sum(e.memory("MainMemory").bits for e in found.einsums)
    times = [r["time_s"] for r in rows if r["time_s"] is not None]
    assert sum(times) == pytest.approx(sum(t for e in found.einsums for t in e.times.values()))
    for wrong in (
        lambda: found.einsum("Y"),
        lambda: found.einsum("Z").unit("x"),
        lambda: found.einsum("Z").memory("x"),
    ):
        with pytest.raises(KeyError):
            wrong()


def test_blocks_need_the_same_architecture_loops_and_other_units() -> None:
    assert run(data.design("gamma")).blocks == (("T", "Z"),)
    assert run(data.design("outerspace")).blocks == (("T0",), ("T1", "Z"))
    other = changed("gamma", ("Z: {space: [M], time: [N, K]}", "Z: {space: [N], time: [M, K]}"))
    assert run(other).blocks == (("T",), ("Z",))


def test_without_bandwidth_or_clock_there_is_no_time() -> None:
    slow = run(changed("gamma", ("{bandwidth: 1099511627776}", "{}")))
    assert slow.einsum("T").memory("MainMemory").time is None
    assert slow.time is None
    assert (
        slow.einsum("T").memory("MainMemory").bits
        == run(data.design("gamma")).einsum("T").memory("MainMemory").bits
    )


def test_nothing_in_common_moves_only_what_is_read() -> None:
    """A and B share no k: coordinates are compared, no value is fetched, nothing is written."""
    a = SparseTensor.from_coo("A", "KM", [5, 4], [[0, 2], [1, 3]], [1, 1])
    b = SparseTensor.from_coo("B", "KN", [5, 6], [[1, 3], [0, 5]], [1, 1])
    found = run(data.design("extensor"), {"A": a, "B": b}).einsum("Z")
    assert found.unit("FPMul").total == 0
    assert found.memory("MainMemory").of("Z").bits == 0


def test_an_empty_tensor_moves_nothing() -> None:
    none = SparseTensor.from_coo("A", "KM", [5, 4], np.zeros((2, 0), dtype=int), [])
    found = run(data.design("extensor"), {**tensors(), "A": none})
    assert found.einsum("Z").memory("MainMemory").of("A").bits == 0
    assert found.einsum("Z").unit("K2Intersect").total == 0


@pytest.mark.parametrize("name", data.DESIGNS)
def test_values_do_not_matter_but_cancelled_ones_are_not_stored(name: str) -> None:
    given = tensors()
    same = {t: SparseTensor.from_coo(t, x.ranks, x.shape, x.coords, x.values * 2.5) for t, x in given.items()}
    assert run(data.design(name), same).metrics() == run(data.design(name), given).metrics()


def test_a_sum_that_cancels_counts_as_touched() -> None:
    a = SparseTensor.from_coo("A", "KM", [5, 4], [[0, 1], [0, 0]], [1, 1])
    b = SparseTensor.from_coo("B", "KN", [5, 6], [[0, 1], [0, 0]], [1, -1])
    found = run(data.design("extensor"), {"A": a, "B": b}).einsum("Z")
    assert found.unit("FPMul").total == 2
    assert found.unit("FPAdd").total == 1


def test_tensors_that_do_not_fit_are_all_named() -> None:
    a = SparseTensor.from_coo("A", "MK", [4, 5], [[0], [0]], [1])
    with pytest.raises(SpecError) as fault:
        run(data.design("gamma"), {"A": a})
    assert "A has the ranks M, K" in str(fault.value)
    assert "there is no tensor B" in str(fault.value)
    b = SparseTensor.from_coo("B", "KN", [7, 6], [[0], [0]], [1])
    with faults("inconsistent-values", "K", "B", at=""):
        run(data.design("gamma"), {**tensors(), "B": b})


def test_lines_narrower_than_an_element_are_all_named() -> None:
    text = changed("outerspace", ("width: 96", "width: 64"))
    with pytest.raises(SpecError) as fault:
        run(text)
    assert len(fault.value.diagnostics) == 2
    assert "elem of N has 96 bits, a line 64" in str(fault.value)


def test_an_eviction_inside_the_loop_is_refused() -> None:
    old = "{tensor: A, rank: M, type: payload, format: default, evict-on: root}"
    with refused("unsupported-binding", "N"):
        run(changed("gamma", (old, old.replace("root", "N"))))


def test_sums_of_terms_are_refused() -> None:
    spec = data.plain(data.design("sigma"))
    spec["einsum"]["expressions"] = ["Z[m, n] = A[k, m] * B[k, n] + A[k, m] * B[k, n]"]
    with refused("unsupported-operation"):
        run(yaml.safe_dump(spec))


def test_walking_a_rank_that_is_split_or_holds_values_is_refused() -> None:
    with refused("unsupported-loop", "K"):
        run(data.design("gamma"), walked={"A": ("K",), "B": ("K",)})


def test_a_tensor_read_at_different_elements_is_refused() -> None:
    spec = data.plain(data.design("extensor"))
    spec["einsum"]["expressions"] = ["Z[m, n] = A[k, m] * A[k, n] * B[k, n]"]
    with refused("unsupported-binding"):
        run(yaml.safe_dump(spec))


def test_a_tensor_that_leads_is_read_once() -> None:
    spec = data.plain(data.design("gamma"))
    spec["einsum"]["expressions"][0] = "T[k, m, n] = take(A[k, m], A[k, m], B[k, n], 2)"
    with refused("unsupported-binding"):
        run(yaml.safe_dump(spec))


def test_an_intersector_of_three_reads_of_two_tensors_is_refused() -> None:
    spec = data.plain(data.design("extensor"))
    spec["einsum"]["expressions"] = ["Z[m, n] = A[k, m] * A[k, m] * B[k, n]"]
    with refused("unsupported-binding"):
        run(yaml.safe_dump(spec))


def test_what_was_given_is_checked_at_once() -> None:
    text = data.design("gamma")
    with pytest.raises(SpecError) as fault:
        run(text[: text.index("bindings:")], walked={"T": ["M"], "A": ["N"]}, replacement="fifo")
    assert len(fault.value.diagnostics) == 4
    for part in ("binds nothing", "replacement is 'fifo'", "walked names M of T", "walked names N of A"):
        assert part in str(fault.value)


def test_a_scalar_and_no_loops_on_the_output() -> None:
    """Z[] = s * A[k] * B[k]: two products each, one output."""
    spec = data.plain(data.design("extensor"))
    spec["einsum"] = {
        "declaration": {"A": ["K"], "B": ["K"], "Z": []},
        "expressions": ["Z[] = s * A[k] * B[k]"],
    }
    spec["mapping"] = {"loop-order": {"Z": ["K"]}}
    ranks = {"rank-order": ["K"], "K": {"format": "C", "cbits": 32, "pbits": 64}}
    spec["format"] = {"A": {"default": ranks}, "B": {"default": ranks}}
    data_of = [
        {"tensor": t, "rank": "K", "type": k, "format": "default"} for t in "AB" for k in ("coord", "payload")
    ]
    spec["bindings"] = {
        "Z": [
            {"config": "Accelerator"},
            {"component": "MainMemory", "bindings": data_of},
            {"component": "LLB", "bindings": [{**b, "evict-on": "root"} for b in data_of]},
            {"component": "K0Intersect", "bindings": [{"rank": "K"}]},
            {"component": "FPMul", "bindings": [{"op": "mul"}]},
            {"component": "FPAdd", "bindings": [{"op": "add"}]},
        ]
    }
    a = SparseTensor.from_coo("A", ["K"], [9], [[0, 2, 3, 7]], [1, 1, 1, 1])
    b = SparseTensor.from_coo("B", ["K"], [9], [[2, 3, 4]], [1, 1, 1])
    found = traffic(read_teaal(yaml.safe_dump(spec)), {"A": a, "B": b}).einsum("Z")
    memory = found.memory("MainMemory")
    # A's 0 2 3 7 are read on two lines, 2 3 4 of B on two; two values of each.
    assert (memory.of("A").read, memory.of("B").read) == (4 * 64, 4 * 64)
    assert found.unit("FPMul").total == 4
    assert found.unit("FPAdd").total == 1
    assert found.unit("K0Intersect").total == 4
