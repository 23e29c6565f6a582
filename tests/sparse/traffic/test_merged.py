"""Traffic of loops that are merged is that of the walk, on more data than the enumerator takes."""

from __future__ import annotations

from random import Random
from typing import Literal

import numpy as np
import pytest
import yaml

from polymodel.errors import Refused
from polymodel.sparse import ranges
from polymodel.sparse.execute import merged
from polymodel.sparse.traffic import einsum, parts, replacement, traffic
from polymodel.spec.teaal import read_teaal
from tests.seeds import seeds
from tests.sparse.traffic import data
from tests.sparse.traffic.specs import DECLARED, as_cache, random_points, random_spec

POLICIES: tuple[Literal["lru", "optimal"], ...] = ("lru", "optimal")


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("seed", seeds(6, range(200)))
def test_as_walked(seed: int, cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _, walked = random_spec(seed)
    rng = Random(seed)
    if cached:
        as_cache(spec, rng.choice([2, 5, 15, 40, 100]), rng.choice(["AB", "ABZ"]))
    sizes = {r: rng.randint(5, 25) for r in "KMN"}
    tensors = {
        t: data.tensor(t, DECLARED[t], sizes, random_points(rng, [sizes[r] for r in DECLARED[t]], 0.3))
        for t in "AB"
    }
    monkeypatch.setattr(merged, "BLOCK", rng.choice([1, 50, 2**20]))
    wide = rng.choice([False, True])
    monkeypatch.setattr(merged, "far_apart", lambda *_: wide)
    teaal = read_teaal(yaml.safe_dump(spec))
    monkeypatch.setattr(replacement, "_BLOCK", rng.choice([1, 50, 2**18]))
    monkeypatch.setattr(ranges, "WINDOW", rng.choice([1, 5, 2**12]))
    ours = [traffic(teaal, tensors, walked=walked, replacement=policy) for policy in POLICIES]
    monkeypatch.setattr(einsum, "applies", lambda *_: False)
    monkeypatch.setattr(ranges, "WINDOW", 2**40)
    assert ours == [traffic(teaal, tensors, walked=walked, replacement=policy) for policy in POLICIES]
    least, best = ([m for e in found.einsums for x in e.memories for m in x.moved] for found in ours)
    assert all(
        b.read <= a.read and (b.write or 0) <= (a.write or 0) for a, b in zip(least, best, strict=True)
    )


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("seed", seeds(3, range(400)))
def test_in_parts(seed: int, cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some coordinates of the outermost loop at a time, or all at once: the same moves, or is refused."""
    spec, _, walked = random_spec(seed)
    rng = Random(seed)
    if cached:
        as_cache(spec, rng.choice([2, 5, 15, 40, 100]), "AB")
    sizes = {r: rng.randint(5, 25) for r in "KMN"}
    tensors = {
        t: data.tensor(t, DECLARED[t], sizes, random_points(rng, [sizes[r] for r in DECLARED[t]], 0.3))
        for t in "AB"
    }
    teaal = read_teaal(yaml.safe_dump(spec))
    policy = rng.choice([None, "lru", "lru", "optimal"])

    def moved() -> object:
        try:
            return traffic(teaal, tensors, walked=walked, replacement=policy)
        except Refused as refusal:
            return str(refusal)

    whole = moved()
    monkeypatch.setattr(parts, "PART", rng.choice([1, 4, 20]))
    assert moved() == whole


@pytest.mark.parametrize("seed", seeds(10, range(300)))
def test_reuse_distances(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact between what is small and what is large, and on the right side of both elsewhere."""
    draw = np.random.default_rng(seed)
    labels = np.minimum((draw.pareto(1, int(draw.integers(1, 120))) * 3).astype(np.int64), 40)
    before, after = ranges.neighbours(labels)
    weight = draw.integers(1, 5, 41)[labels]
    for name, choices in (("WINDOW", [1, 7, 50, 500]), ("_LONG", [10, 2**15]), ("_STEP", [1, 4, 64])):
        monkeypatch.setattr(ranges, name, int(draw.choice(choices)))
    asked, large = np.flatnonzero(before >= 0), int(draw.integers(1, 80))
    small = np.maximum(large - draw.integers(0, 5, asked.size), 0)
    found = ranges.reuse_distances(before, after, weight, asked, small, large)
    for at, low, ours in zip(asked, small, found, strict=True):
        between = {labels[use]: weight[use] for use in range(before[at] + 1, at)}
        true = sum(between.values())
        assert ours == true or (true < low and ours < low) or (true >= large and ours >= large)
