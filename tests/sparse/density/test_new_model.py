"""A density model is one class and one line of `parse.MODELS`: everything that counts takes it as it is."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

import polymodel as pm
from polymodel.errors import Refused
from polymodel.sparse.density import parse
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.placeless import Placeless
from polymodel.sparse.density.reader import Path as Place
from polymodel.sparse.density.reader import Reader
from polymodel.sparse.density.slices import greedy
from tests.faults import faults, refused
from tests.sweep.test_sparse import OBJECTIVES, SKIP, SYMBOLS, spec

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Coins(Placeless):
    """Every point is nonzero with probability `share`, whatever the others are."""

    share: float

    @classmethod
    def written(cls, reader: Reader, path: Place, given: object) -> DensityModel | None:
        share = reader.share(path, given)
        return None if share is None else cls(reader.ranks, reader.shape, share)

    def _points(self, tile: ArrayLike) -> Floats:
        found: Floats = self.tiles(tile).prod(axis=-1).astype(np.float64)
        return found

    @property
    def expected_nnz(self) -> float:
        return self.size * self.share

    def expected(self, tile: ArrayLike) -> Floats:
        return self._points(tile) * self.share

    def variance(self, tile: ArrayLike) -> Floats:
        return self._points(tile) * self.share * (1 - self.share)

    def p_empty(self, tile: ArrayLike) -> Floats:
        return np.exp(self._points(tile) * np.log1p(-self.share))

    def p_nonempty(self, tile: ArrayLike) -> Floats:
        return -np.expm1(self._points(tile) * np.log1p(-self.share))

    def cdf(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        from scipy.special import bdtr

        found: Floats = bdtr(occupancy, self._points(tile).astype(np.int64), self.share)
        return found

    def quantile(self, tile: ArrayLike, confidence: ArrayLike) -> Ints:
        def one(t: tuple[int, ...]) -> float:
            return float(np.searchsorted(self.cdf(t, np.arange(math.prod(t) + 1)), confidence))

        return self.each(tile, one).astype(np.int64)

    def expected_max(self, tile: ArrayLike) -> Floats:
        raise Refused("the fullest tile of coins has no formula", code="unsupported-density")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parse.MODELS, "coins", Coins.written)


FORMATS = {"format": {"A": ["U", "CP"]}, "actions": [{"skip": "B", "on": "A"}]}


@pytest.mark.slow
@pytest.mark.parametrize("dram", [SKIP, FORMATS])
def test_it_is_counted_like_the_model_that_says_the_same(dram: dict[str, object]) -> None:
    """Coordinates kept one by one in whole rows are coins, too."""
    mac = {"actions": [{"skip": "compute", "on": "A"}]}
    reports, sweeps = [], []
    for density in ({"coins": 0.15}, {"hierarchical": [1, 0.15]}):
        one = spec(dram=dram, mac=mac, densities={"A": density})
        found = pm.sweep(one, SYMBOLS, objectives=OBJECTIVES, keep="all")
        sweeps.append(found.frame)
        reports.append(pm.sparsify(pm.evaluate(found.spec(found.frame.iloc[0]))))
    ours, theirs = reports
    assert ours.total_energy == pytest.approx(theirs.total_energy, rel=1e-12)
    assert ours.total_latency == pytest.approx(theirs.total_latency, rel=1e-12)
    for name in OBJECTIVES:
        assert sweeps[0][name].to_numpy() == pytest.approx(sweeps[1][name].to_numpy(), rel=1e-12)


def test_a_wrong_parameter_is_a_fault_of_its_place() -> None:
    with faults("out-of-range", at="coins"):
        parse.model_of({"coins": 1.5}, "IJ", (4, 4))


def test_what_it_does_not_say_is_refused_or_unknown() -> None:
    """The defaults of the protocol."""
    model = Coins(("I", "J"), (40, 30), 0.2)
    assert model.points is None
    assert model.data is None
    assert not model.settled
    assert model.known_rows() is None
    assert model.fullest_part([np.zeros(40, np.int64)] * 2) is None
    for ask in (lambda: model.draw(1), lambda: greedy(model, 4), model.square_multiplies):
        with refused("unsupported-density", "Coins"):
            ask()
    assert pm.estimate_tiling(model, tilers=["qtree"]).found[0].estimate.tiles > 0
    with refused("unsupported-density", "Coins"):
        pm.estimate_tiling(model, tilers=["simple"])


def model_classes(cls: type[DensityModel] = DensityModel) -> Iterator[str]:
    for sub in cls.__subclasses__():
        yield sub.__name__
        yield from model_classes(sub)


def test_nobody_else_asks_which_model_it_is() -> None:
    classes, told = set(model_classes()), []
    assert {"Uniform", "Actual", "Placed", "Placeless"} <= classes
    for path in sorted((ROOT / "polymodel").rglob("*.py")):
        if "sparse/density" in path.as_posix():
            continue
        text = path.read_text(encoding="utf-8")
        if "polymodel.sparse.density" not in text:
            continue
        tree = ast.parse(text)
        imported = {
            (name.asname or name.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polymodel.sparse.density")
            for name in node.names
            if name.name in classes
        }
        for node in ast.walk(tree):
            asked: list[ast.AST] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
                asked = list(ast.walk(node.args[1]))
            elif isinstance(node, ast.MatchClass):
                asked = list(ast.walk(node.cls))
            if any(isinstance(x, ast.Name) and x.id in imported for x in asked):
                told.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not told, "make it a method or attribute of the protocol in polymodel/sparse/density/model.py"
