"""Cascades that are counted for some coordinates of the outermost loop at a time move what whole ones do."""

from __future__ import annotations

from random import Random
from typing import Literal

import pytest
import yaml

from polymodel.errors import Refused
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic import rows, traffic
from polymodel.spec.teaal import read_teaal
from tests.seeds import seeds
from tests.sparse.traffic import data
from tests.sparse.traffic.specs import DECLARED, random_points

GAMMA = yaml.safe_load(data.design("gamma"))


def varied(rng: Random) -> str:
    """Gamma with other buffers, evictions, formats and mergers."""
    spec = yaml.safe_load(yaml.safe_dump(GAMMA))
    spec["format"]["A"]["default"]["M"]["format"] = rng.choice("UC")
    (system,) = spec["architecture"]["Accelerator"]
    chip = system["subtree"][0]
    (fibers,) = chip["local"]
    fibers["attributes"]["depth"] = rng.choice([3, 10, 40, 393216])
    fibers["class"] = rng.choice(["Cache", "Cache", "Buffet"])
    merger = next(part for part in chip["subtree"][0]["local"] if part["class"] == "Merger")
    merger["attributes"].update(inputs=rng.choice([64, "inf"]), comparator_radix=rng.choice([2, 3, 64]))
    for einsum in ("T", "Z"):
        for part in spec["bindings"][einsum][1:]:
            for binding in part["bindings"]:
                if part["component"] == "FiberCache" and fibers["class"] == "Buffet":
                    binding["evict-on"] = rng.choice(
                        ["root", "M", "K"] if binding["rank"] == "N" else ["root", "M"]
                    )
                elif binding.get("evict-on") == "M" and binding["tensor"] == "A":
                    binding["evict-on"] = rng.choice(["root", "M"])
    return yaml.safe_dump(spec)


def inputs(rng: Random) -> dict[str, SparseTensor]:
    sizes = {r: rng.randint(12, 25) for r in "KMN"}
    return {
        t: data.tensor(t, DECLARED[t], sizes, random_points(rng, [sizes[r] for r in DECLARED[t]], 0.3))
        for t in "AB"
    }


@pytest.mark.parametrize("seed", seeds(8, range(300)))
def test_as_in_one_piece(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    spec, tensors = read_teaal(varied(rng)), inputs(rng)
    walked = rng.choice([None, data.WALKED["gamma"]])
    policy: Literal["lru"] | None = rng.choice([None, "lru", "lru"])

    def moved() -> object:
        try:
            return traffic(spec, tensors, walked=walked, replacement=policy)
        except Refused as refusal:
            return str(refusal)

    whole = moved()
    parts: list[object] = []
    monkeypatch.setattr(rows, "look", parts.append)
    monkeypatch.setattr(rows, "PART", rng.choice([1, 4, 20]))
    assert moved() == whole
    assert len(parts) > 1


@pytest.mark.parametrize(
    ("einsum", "component", "change"),
    [
        ("Z", "HighRadixMerger", {"init-ranks": ["K", "M", "N"], "final-ranks": ["M", "K", "N"]}),
        ("T", "Intersect", {"rank": "M"}),
        ("T", "RegFile0", {"style": "eager"}),
    ],
)
def test_what_looks_at_several_rows_is_counted_in_one_piece(
    einsum: str, component: str, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = yaml.safe_load(yaml.safe_dump(GAMMA))
    bound = next(part for part in spec["bindings"][einsum] if part.get("component") == component)
    bound["bindings"][-1].update(change)
    rng = Random(1)
    tensors = inputs(rng)
    monkeypatch.setattr(rows, "PART", 1)
    read = read_teaal(yaml.safe_dump(spec))
    monkeypatch.setattr(rows, "PartSums", None)  # not reached
    assert traffic(read, tensors).einsum("Z").memories


def test_the_best_replacement_is_counted_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks ahead to later rows."""
    tensors = inputs(Random(2))
    whole = traffic(read_teaal(data.design("gamma")), tensors, replacement="optimal")
    monkeypatch.setattr(rows, "PART", 1)
    monkeypatch.setattr(rows, "PartSums", None)
    assert traffic(read_teaal(data.design("gamma")), tensors, replacement="optimal") == whole
