"""Densities as they are written: every model, and every fault at its place, all at once."""

from __future__ import annotations

import numpy as np
import pytest

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density import (
    Actual,
    Banded,
    FixedStructured,
    Hierarchical,
    RankNnz,
    Uniform,
    model_of,
    random_tensor,
)
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults

RANKS, SHAPE = ("I", "K"), (4, 8)
DATA = random_tensor(("R0", "R1"), SHAPE, 0.3, 1)


def read(path: str) -> SparseTensor:
    if path != "a.mtx":
        raise SpecError([Diagnostic(f"cannot read {path}", "give another file")])
    return DATA


def model(written: object) -> object:
    return model_of(written, RANKS, SHAPE, read=read, name="A")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (0.25, Uniform(RANKS, SHAPE, 8)),
        (1, Uniform(RANKS, SHAPE, 32)),
        ({"uniform": 0.25}, Uniform(RANKS, SHAPE, 8)),
        ({"uniform": {"density": 0.5}}, Uniform(RANKS, SHAPE, 16)),
        ({"uniform": {"nnz": 3}}, Uniform(RANKS, SHAPE, 3)),
        ({"uniform": {"nnz": 1e1}}, Uniform(RANKS, SHAPE, 10)),
        ({"hierarchical": [0.5, 0.1]}, Hierarchical(RANKS, SHAPE, (0.5, 0.1))),
        ({"hierarchical": {"K": 0.1, "I": 0.5}}, Hierarchical(RANKS, SHAPE, (0.5, 0.1))),
        ({"hierarchical": {"density": [1, 0]}}, Hierarchical(RANKS, SHAPE, (1.0, 0.0))),
        ({"fixed_structured": {"n": 2, "m": 4}}, FixedStructured(RANKS, SHAPE, 2, 4, "K")),
        ({"fixed_structured": {"n": 1, "m": 2, "rank": "I"}}, FixedStructured(RANKS, SHAPE, 1, 2, "I")),
        ({"banded": {"width": 2}}, Banded(RANKS, SHAPE, 2)),
        ({"banded": 0}, Banded(RANKS, SHAPE, 0)),
        ({"banded": {"width": 1, "ranks": ["K", "I"]}}, Banded(RANKS, SHAPE, 1, ("K", "I"))),
    ],
)
def test_models_are_read(written: object, wanted: object) -> None:
    assert model(written) == wanted


def test_histograms_and_data_are_read() -> None:
    rows = model({"rank_nnz": {"histogram": [1, 0, 8, 2]}})
    assert isinstance(rows, RankNnz)
    assert (rows.along, rows.histogram.tolist()) == (("I",), [1, 0, 8, 2])
    columns = model({"rank_nnz": {"rank": "K", "histogram": [1, 0, 4, 2, 1, 1, 1, 1]}})
    assert isinstance(columns, RankNnz)
    assert columns.along == ("K",)
    counted = model({"rank_nnz": {"file": "a.mtx"}})
    assert isinstance(counted, RankNnz)
    assert counted.histogram.tolist() == np.bincount(DATA.coords[0], minlength=4).tolist()
    for written in ({"actual": "a.mtx"}, {"actual": {"file": "a.mtx"}}, {"actual": DATA}):
        data = model(written)
        assert isinstance(data, Actual)
        assert (data.tensor.name, data.ranks, data.tensor.nnz) == ("A", RANKS, DATA.nnz)
    assert model(data) is data


@pytest.mark.parametrize(
    ("written", "path", "message"),
    [
        (1.5, (), r"A: density 1.5 is outside \[0, 1\]"),
        (-1, (), "density -1 is outside"),
        (float("nan"), (), "density nan is outside"),
        (True, (), "True is not a density"),
        ("dense", (), "'dense' is not a density"),
        ({"uniform": {"density": 2}}, ("uniform", "density"), "density 2 is outside"),
        ({"uniform": {"nnz": 33}}, ("uniform", "nnz"), "nnz 33 is not a whole number of 0 to 32"),
        ({"uniform": {"nnz": 1.5}}, ("uniform", "nnz"), "nnz 1.5 is not a whole"),
        ({"uniform": {"nnz": float("inf")}}, ("uniform", "nnz"), "nnz inf is not a whole"),
        ({"uniform": {}}, ("uniform",), "needs one of density, nnz"),
        ({"uniform": {"nnz": 1, "density": 0.1}}, ("uniform",), "needs one of"),
        ({"uniform": [1]}, ("uniform",), "not a mapping"),
        ({"unifrom": 0.1}, ("unifrom",), "'unifrom' is not known"),
        ({"hierarchical": [0.5]}, ("hierarchical",), "not one density per rank"),
        ({"hierarchical": {"I": 0.5}}, ("hierarchical",), "no density of rank K"),
        ({"hierarchical": {"I": 0.5, "K": 3}}, ("hierarchical", "K"), "density 3"),
        ({"hierarchical": {"I": 0.5, "K": 1, "Q": 1}}, ("hierarchical", "Q"), "unknown rank 'Q'"),
        (
            {"fixed_structured": {"n": 5, "m": 4}},
            ("fixed_structured", "n"),
            "n 5 is not a whole number of 0 to 4",
        ),
        ({"fixed_structured": {"n": 1, "m": 0}}, ("fixed_structured", "m"), "m 0"),
        ({"fixed_structured": {"n": 1, "m": float("inf")}}, ("fixed_structured", "m"), "m inf"),
        ({"fixed_structured": {"n": 1, "m": 4, "rank": "Q"}}, ("fixed_structured", "rank"), "rank 'Q'"),
        ({"fixed_structured": 2}, ("fixed_structured",), "not a mapping"),
        ({"banded": {"width": -1}}, ("banded", "width"), "width -1"),
        ({"banded": {"width": 1, "ranks": ["I"]}}, ("banded", "ranks"), "a band on 1 ranks"),
        ({"banded": {"width": 1, "ranks": ["I", "I"]}}, ("banded",), "between a rank and itself"),
        ({"banded": {"wide": 1, "width": 1}}, ("banded", "wide"), "unknown parameter 'wide'"),
        ({"rank_nnz": {"histogram": [1, 2]}}, ("rank_nnz", "histogram"), r"has \(2,\) entries, not \(4,\)"),
        ({"rank_nnz": {"histogram": [1, 9, 0, 0]}}, ("rank_nnz", "histogram"), "the first is 9 at 1"),
        ({"rank_nnz": {"histogram": [[1], [2, 3]]}}, ("rank_nnz", "histogram"), "list of numbers"),
        ({"rank_nnz": {"histogram": ["a"]}}, ("rank_nnz", "histogram"), "list of numbers"),
        ({"rank_nnz": {"rank": "Q", "histogram": [1]}}, ("rank_nnz", "rank"), "unknown rank 'Q'"),
        ({"rank_nnz": {"rank": "I"}}, ("rank_nnz",), "needs one of histogram, file"),
        ({"actual": "b.mtx"}, ("actual",), "cannot read b.mtx"),
        ({"actual": 3}, ("actual",), "is not a name of a file"),
        ({"uniform": 0.1, "banded": 1}, (), "is not a density"),
    ],
)
def test_faults_are_told_where_they_are(written: object, path: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message) as error:
        model(written)
    assert [fault.path for fault in error.value.diagnostics] == [".".join(path)]


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SpecError) as error:
        model({"fixed_structured": {"n": -1, "m": 0, "rank": "Q", "k": 3}})
    assert len(error.value.diagnostics) == 4
    with faults("unknown-choice", at="unifrom"):
        model({"unifrom": 0.1})


def test_data_must_fit() -> None:
    with faults("shape-mismatch", at="actual"):
        model_of({"actual": "a.mtx"}, RANKS, (4, 9), read=read)
    with faults("wrong-count", at="actual"):
        model_of({"actual": "a.mtx"}, ("I", "J", "K"), (4, 8, 1), read=read)
    with faults("unreadable-file", at="actual"):
        model_of({"actual": "a.mtx"}, RANKS, SHAPE)
