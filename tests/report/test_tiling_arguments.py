"""Wrong arguments of `pm.tile`, `pm.tile_matmul` and what they return are told, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import polymodel as pm

matplotlib.use("agg")
api: Any = pm  # what is wrong is wrong on purpose
SMALL = str(Path(__file__).resolve().parents[1] / "data" / "matrices" / "pairs.mtx.gz")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda found: found.export(5), "cannot write 5: it is not a name of a file"),
        (lambda found: found.to_csv(5), "cannot write 5"),
        (lambda found: found.to_json(5), "cannot write 5"),
        (lambda found: found.plot(ax=5), "plot: 5 is not an axes"),
        (lambda found: found.plot(bins=0), "0 bins are not drawn"),
        (lambda found: found.plot_tilers(5), "tilers=5 is not a list of names"),
        (lambda found: found.plot_tilers("btree"), "write tilers="),
        (lambda found: found.plot_comparison(5), "tilers=5 is not a list of names"),
        (lambda found: found.plot_comparison(["btre"]), "did you mean btree"),
        (lambda found: found.comparison(5), "tilers=5 is not a list of names"),
        (lambda found: api.tile(found.a, names=5), "names=5 is not a list of names"),
        (lambda found: api.estimate_tiling(found.a, tilers=5), "tilers=5 is not a list of names"),
        (lambda found: api.tile_matmul(found.a, pm.Rolled(3)), "a product needs a factor"),
        (lambda found: api.tile_matmul(found.a, "rolled:3"), r"pm\.Transposed\(\), or leave b out"),
        (lambda found: api.tile_matmul(found.a, pm.Alone(), capacity=99), "pm.tile adds and multiplies"),
        (lambda found: api.tile_matmul(found.a, 5, capacity=99), "tile_matmul: 5 is not a sparse tensor"),
        (lambda found: api.tile_matmul(found.a, tile=5), "tile 5 is not a list of sizes"),
        (lambda found: api.tile_matmul(found.a, capacity=99, order=5), "write e.g. ikj"),
        (lambda found: api.tile_matmul(found.a, capacity=99, grid=5), "three lists"),
        (lambda found: api.tile_matmul(found.a, capacity=99, overbook="x"), "overbook 'x' is not a share"),
        (lambda found: api.tile_matmul(found.a, capacity=99, time_limit="x"), "time_limit 'x' is not a time"),
        (lambda found: api.tile_matmul(found.a, pm.Transposed(), capacity=300).plot(5), "5 is not an axes"),
        (lambda found: api.tile_matmul(found.a, pm.Transposed(), capacity=300).to_csv(5), "cannot write 5"),
        (lambda found: api.tune_tiling(found.a).plot(5), "5 is not an axes"),
        (lambda found: api.estimate_tiling(found.a, tilers=["strips"]).plot(ax=5), "5 is not an axes"),
    ],
)
def test_wrong_arguments_are_told(wrong: Callable[[Any], object], told: str) -> None:
    with pytest.raises(pm.SpecError, match=told):
        wrong(pm.tile(SMALL, tiler="strips"))


def test_the_second_factor_in_words() -> None:
    words = pm.tile_matmul(SMALL, "transposed", tile=(32, 8, 32)).words
    assert words == pm.tile_matmul(SMALL, pm.Transposed(), tile=(32, 8, 32)).words
