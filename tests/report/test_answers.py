"""Every answer has the whole protocol, and each method of it works."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest

import polymodel as pm
from benchmarks import pruning
from polymodel.errors import Refused
from polymodel.report.closed import SymbolicReport
from polymodel.view.answer import Answer
from polymodel.view.table import Table
from tests.faults import faults
from tests.hardware.small import small
from tests.report.test_report_page import checked
from tests.seeds import seeds


def _chain() -> pm.Spec:
    return pm.load("simple_two_level", "matmul_chain_2/tiled_fused")


def _matmul() -> pm.Spec:
    return pm.load("simple_two_level", "matmul/output_stationary", M=32, N=32, K=32)


def _matrix() -> pm.SparseTensor:
    return pm.random_tensor(["I", "J"], (40, 40), 0.1, 1)


def _ran() -> object:
    return pm.execute(pm.load("tensaurus/spmm"), {"A": _matrix(), "B": np.ones((40, 4))})


def _moved() -> object:
    a = pm.random_tensor(["K", "M"], [4, 4], 0.5, seed=1)
    b = pm.random_tensor(["K", "N"], [4, 4], 0.5, seed=2)
    return pm.traffic(pm.load("teaal/gamma_traffic"), {"A": a, "B": b})


def _designed() -> object:
    return pm.codesign(small(), {"S": [128, 256]}, objectives=("energy", "area"))


SIZES = ("TM1", "TN1", "TK1", "TM0", "TN0", "TK0")
ONES = dict.fromkeys(SIZES[3:], 1)
MADE: dict[str, Callable[[], object]] = {
    "Report": lambda: pm.evaluate(_chain()),
    "SymbolicReport": lambda: _forms().at(**dict.fromkeys(_forms().symbols, 2)),
    "SparseReport": lambda: pm.evaluate(_chain()).sparse,
    "TilingReport": lambda: pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands")).tiling,
    "Comparison": lambda: pm.compare(pm.evaluate(_chain()), pm.evaluate(_chain())),
    "Execution": _ran,
    "CascadeTraffic": _moved,
    "ExecutionReport": lambda: pm.ExecutionReport(_ran()),
    "TrafficReport": lambda: pm.TrafficReport(_moved()),
    "Predictions": lambda: pm.predict(_matrix()),
    "DensityFit": lambda: pm.fit_density(_matrix(), tiles=(8,)),
    "TensaurusReport": lambda: pm.tensaurus("SpMM", _matrix()),
    "Tiling": lambda: pm.tile(_matrix(), fit=pm.elements(32)),
    "TilingEstimates": lambda: pm.estimate_tiling(_matrix()),
    "MatmulTiling": lambda: pm.tile_matmul(_matrix(), _matrix(), capacity=128),
    "ChainTiling": lambda: pm.tile_chain(_matrix(), _matrix(), np.ones((40, 4)), capacity=512),
    "TileSimulation": lambda: pm.tile(_matrix(), fit=pm.elements(32)).simulate(most=3),
    "Tuning": lambda: pm.tune_tiling(_matrix()),
    "TilerSwift": lambda: pm.tiler_swift_comparison([_matrix()]),
    "Sweep": lambda: pm.sweep(pruning.matmul(4), {n: [1, 2] for n in SIZES[:3]} | ONES, keep="all"),
    "Front": lambda: pm.explore(_matmul(), objectives=("energy", "buffer")),
    "Codesign": _designed,
    "Distribution": lambda: pm.distribute(small(), [1, 2], split="k"),
    "Gallery": lambda: pm.gallery("timeloop_page"),
    "SkiSlope": lambda: pm.ski_slope(_matmul()),
    "ChainSlope": lambda: pm.chain_slope(_chain()),
    "GraphSlope": lambda: pm.graph_slope(_chain()),
    "Mapspace": lambda: pm.mapspace(_matmul()),
    "Explanation": lambda: pm.evaluate(_matmul()).explain("Matmul", "GLB", "A"),
    "Peak": lambda: pm.evaluate(_matmul()).peak("GLB"),
    "Imported": lambda: pm.Imported("a.yaml", "workload: {}\n"),
}


@cache
def _forms() -> SymbolicReport:
    return pm.closed_forms(_chain(), tiles=True)


@cache
def made(name: str) -> Answer:
    found = MADE[name]()
    assert isinstance(found, Answer), name
    return found


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def subclasses(of: type) -> set[type]:
    return {c for one in of.__subclasses__() for c in {one, *subclasses(one)}}


def test_every_answer_is_in_the_list() -> None:
    names = {type(made(name)).__name__ for name in MADE}
    assert names == {c.__name__ for c in subclasses(Answer)} - {"Evaluated"}


@pytest.mark.parametrize("name", MADE)
def test_tables(name: str) -> None:
    """Each by its name as plain data and as a DataFrame; every column has a meaning."""
    found = made(name)
    assert found.tables
    assert found.table() is found.table(found.tables[0])
    for table in found.tables:
        try:
            one, plain = found.table(table), found.plain(table)
        except Refused:
            continue
        assert isinstance(plain, Table)
        frame = one.frame()
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame.columns) == [c.name for c in plain.columns]
        assert len(frame) == len(plain.rows)
        assert found.declared[table].words.endswith(".")
    assert isinstance(found.frame, pandas.DataFrame)
    assert isinstance(found.summary, pandas.DataFrame)
    with faults("unknown-name", at="table"):
        found.table("nonsense")


@pytest.mark.parametrize("name", MADE)
@pytest.mark.thin(3)
def test_text_and_pages(name: str, tmp_path: Path) -> None:
    found = made(name)
    assert str(found).strip()
    assert found.whole_text().endswith("\n")
    assert len(repr(found)) < 6_000
    checked(found._repr_html_())
    page = found.to_html(tmp_path / "page.html", plots=False, command="polymodel x")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    checked(page)
    assert "polymodel x" in page
    assert found.title


@pytest.mark.parametrize("name", seeds(len(MADE) - 1, sorted(MADE, key="Report".__eq__)))
@pytest.mark.thin(5)
def test_files(name: str, tmp_path: Path) -> None:
    found = made(name)
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert len(rows) == 1 + len(found.plain().rows)
    (one,) = found.to_csv(tmp_path / "one.csv")
    assert one.read_text(encoding="utf-8") == found.to_csv()
    listed = [n for n, _ in found.listed()]
    assert {p.name for p in found.to_csv(tmp_path / "csv")} == {f"{n}.csv" for n in listed}
    assert {p.name for p in found.to_parquet(tmp_path / "parquet")} == {f"{n}.parquet" for n in listed}
    data = json.loads(found.to_json(tmp_path / "data.json"))
    assert data["format"].startswith("polymodel-")
    assert (tmp_path / "data.json").read_text(encoding="utf-8") == found.to_json()
    written = found.save(tmp_path / "all")
    assert written
    assert all(p.is_file() for p in written)


@pytest.mark.parametrize("name", MADE)
def test_pictures(name: str) -> None:
    assert made(name).plot() is not None
