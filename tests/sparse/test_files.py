"""Readers and writers: real files against their index, SciPy's reader, round trips, fast against slow."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.sparse.files import read_file, read_tensor, write_tensor
from polymodel.sparse.files.text import FileFaults, LineBlock, Rule, bulk, one_by_one
from polymodel.sparse.tensor import SparseTensor
from tests.data import make
from tests.faults import faults
from tests.sparse import data

MATRICES = [name for name, row in data.index().items() if "rows" in row]


def test_the_index_names_every_file() -> None:
    there = {p.name for p in data.FOLDER.iterdir() if p.suffix == ".gz"}
    assert there == {row["file"] for row in data.index().values()}
    assert len(there) == 14


@pytest.mark.slow
def test_every_file_is_as_it_is_generated() -> None:
    """If not: python -m tests.data.make. None is anybody else's: each has a call that makes it."""
    assert not list(make.stale())
    for row in data.index().values():
        made = eval(row["made_by"], {"pm": pm})  # a call of ours
        assert made.nnz == row["nnz"] + row.get("explicit_zeros_expanded", 0)
        read = data.tensor(row["name"])
        if made.nnz == read.nnz:
            assert (made.coords == read.coords).all()


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_have_the_counts_of_the_index(name: str) -> None:
    row, found = data.index()[name], data.file(name)
    assert found.tensor.shape == (row["rows"], row["cols"])
    assert (found.field, found.symmetry) == (row["field"], row["header_symmetry"])
    assert found.entries == row["stored_entries"]
    assert found.explicit_zeros == row["explicit_zeros_expanded"]
    assert found.tensor.nnz == row["nnz"]
    assert found.entries + found.mirrored == row["nnz"] + row["explicit_zeros_expanded"]
    rows = np.bincount(found.tensor.rank("I"), minlength=row["rows"])
    assert (rows.max(), (rows == 0).sum()) == (row["max_row_nnz"], row["empty_rows"])


@pytest.mark.parametrize("name", ["frame", "circuit", "web", "programme"])
def test_matrices_are_those_of_scipy(name: str) -> None:
    theirs = scipy.io.mmread(data.FOLDER / data.index()[name]["file"]).tocsr()
    assert abs(data.tensor(name).to_scipy() - theirs).nnz == 0


def test_the_facts_have_the_counts_of_the_index() -> None:
    row, found = data.index()["facts"], data.file("facts")
    assert found.tensor.shape == tuple(row["dims"])
    assert found.tensor.nnz == found.entries == row["nnz"]
    assert (found.field, found.notes) == ("pattern", ())
    assert [np.unique(c).size for c in found.tensor.coords] == row["distinct_per_mode"]


def test_a_last_column_that_may_be_coordinates_is_told() -> None:
    found = read_file(data.FOLDER / "facts.tns.gz")
    assert found.tensor.ranks == ("I", "J", "K")
    assert "935 entries were added to others at their point" in found.notes[0]
    assert "if they are coordinates, give 4 ranks" in found.notes[0]
    with pytest.warns(UserWarning, match="if they are coordinates, give 4 ranks"):
        read_tensor(data.FOLDER / "facts.tns.gz")


HEADERS = [
    ("coordinate real general", "3 3 4\n1 1 2.5\n3 1 -1e3\n\n2 3 .5\n2 2 1.\n"),
    ("coordinate integer symmetric", "3 3 3\n1 1 7\n3 1 -2\n3 2 4\n"),
    ("coordinate pattern general", "3 2 2\n3 2\n1 1\n"),
    ("coordinate real skew-symmetric", "3 3 2\n2 1 5\n3 2 0.25\n"),
    ("coordinate complex hermitian", "2 2 2\n1 1 5 0\n2 1 1 -2\n"),
    ("coordinate complex general", "2 2 1\n2 1 1 -2\n"),
    ("array real general", "2 3\n1\n2\n0\n4\n5\n6\n"),
    ("array real symmetric", "3 3\n1\n2\n3\n0\n5\n6\n"),
    ("array real skew-symmetric", "3 3\n2\n3\n5\n"),
    ("array integer general", "1 2\n3\n-4\n"),
]


@pytest.mark.parametrize(("header", "body"), HEADERS, ids=[h for h, _ in HEADERS])
def test_every_kind_of_matrix_market(header: str, body: str, tmp_path: Path) -> None:
    """Also with comments, with line ends of Windows, packed, and as SciPy reads it."""
    text = f"%%MatrixMarket matrix {header}\n% a comment\n%\n{body}"
    plain, windows, packed = tmp_path / "m.mtx", tmp_path / "w.mtx", tmp_path / "m.mtx.gz"
    plain.write_bytes(text.encode())
    windows.write_bytes(text.replace("\n", "\r\n").encode())
    packed.write_bytes(gzip.compress(text.replace("MatrixMarket", "matrixmarket").encode()))
    theirs = scipy.io.mmread(plain)
    dense = theirs.toarray() if hasattr(theirs, "toarray") else theirs
    for path in (plain, windows, packed):
        found = read_file(path)
        assert found.tensor.to_dense().tolist() == dense.tolist()
        assert found.tensor.nnz == np.count_nonzero(dense)
        assert found.comments == ("a comment", "")
    assert read_tensor(plain).values.dtype.kind == {"integer": "i", "pattern": "i", "complex": "c"}.get(
        header.split()[1], "f"
    )


UPPER = [
    ("coordinate real symmetric", "3 3 4\n1 1 7\n1 3 -2\n2 3 4\n2 1 3\n", 2),
    ("coordinate pattern symmetric", "3 3 2\n1 2\n3 3\n", 1),
    ("coordinate integer symmetric", "3 3 3\n1 2 4\n1 2 5\n3 1 2\n", 2),
    ("coordinate real skew-symmetric", "3 3 2\n1 2 5\n3 2 0.25\n", 1),
    ("coordinate complex hermitian", "2 2 2\n1 1 5 0\n1 2 1 -2\n", 1),
]


@pytest.mark.parametrize(("header", "body", "above"), UPPER, ids=[h for h, _, _ in UPPER])
def test_entries_above_the_diagonal_of_stored_symmetry_are_mirrored(
    header: str, body: str, above: int, tmp_path: Path
) -> None:
    """As SciPy reads them, and said; line by line and in bulk."""
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix {header}\n{body}")
    found = read_file(path)
    assert found.tensor.to_dense().tolist() == scipy.io.mmread(path).toarray().tolist()
    assert f"{above} entries of a matrix stored by symmetry lie above the diagonal" in found.notes[0]
    with pytest.warns(UserWarning, match="they are mirrored"):
        read_tensor(path)


@pytest.mark.parametrize("both", [False, True])
def test_a_large_file_of_upper_entries_is_read_in_bulk(tmp_path: Path, both: bool) -> None:
    rng = np.random.default_rng(1)
    points = np.unique(rng.integers(1, 3000, (20000, 2)), axis=0)
    points = np.unique(np.sort(points, axis=1), axis=0)
    if both:
        points = np.concatenate([points, [points[points[:, 0] < points[:, 1]][7][::-1]]])
    lines = "".join(f"{i} {j} {i % 7 + 1}\n" for i, j in points)
    path = tmp_path / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate integer symmetric\n3000 3000 {len(points)}\n{lines}")
    if both:
        with faults("inconsistent-values", at=""):
            read_tensor(path)
        return
    found = read_file(path)
    theirs = scipy.io.mmread(path).tocsr()
    assert found.tensor.nnz == theirs.nnz
    assert (found.tensor.to_dense() == theirs.toarray()).all()


def test_what_was_removed_is_on_record(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    entries = "1 1 1\n2 1 0\n3 1 2\n3 1 3\n3 2 4\n3 2 -4\n"
    path.write_text(f"%%MatrixMarket matrix coordinate real symmetric\n3 3 6\n{entries}")
    found = read_file(path, "B", ["M", "N"])
    assert found.tensor.to_dense().tolist() == [[1, 0, 5], [0, 0, 0], [5, 0, 0]]
    assert (found.entries, found.mirrored) == (6, 5)
    assert (found.explicit_zeros, found.duplicates, found.cancelled) == (2, 4, 2)
    assert found.tensor.nnz == 6 + 5 - 2 - 4 - 2
    told = "6 entries, 5 mirrored, 2 explicit zeros removed, 4 duplicates summed, 2 points cancelled"
    assert told in repr(found)


def test_frostt_of_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.tns"
    path.write_text("# made by hand\n\n2 1 3 4 1.5\r\n1 1 1 1 -2\n# in between\n2 1 3 4 0.5")
    found = read_file(path)
    assert found.tensor.ranks == ("I", "J", "K", "L")
    assert found.tensor.shape == (2, 1, 3, 4)
    assert (found.tensor.coords.T.tolist(), found.tensor.values.tolist()) == (
        [[0, 0, 0, 0], [1, 0, 2, 3]],
        [-2, 2],
    )
    assert (found.duplicates, found.comments) == (1, ("made by hand",))
    assert read_tensor(path, shape=[9, 9, 9, 9]).shape == (9, 9, 9, 9)
    without = read_tensor(tmp_path / "t.tns", ranks="ABCD")
    assert without.ranks == ("A", "B", "C", "D")


def test_frostt_without_values(tmp_path: Path) -> None:
    path = tmp_path / "t.tns"
    path.write_text("2 1 3\n1 1 1\n")
    assert read_tensor(path, ranks=["A", "B", "C"]).values.tolist() == [1, 1]
    assert read_tensor(path).values.tolist() == [1, 3]
    path.write_text("# field: pattern\n# shape: 4 x 4 x 4\n2 1 3\n1 1 1\n")
    assert read_tensor(path).shape == (4, 4, 4)


@st.composite
def tensors(draw: st.DrawFn, order: int | None = None) -> SparseTensor:
    shape = draw(st.lists(st.integers(1, 5), min_size=order or 1, max_size=order or 4))
    n = draw(st.integers(0, 12))
    kind = draw(st.sampled_from([np.int64, np.float64]))
    seed = np.random.default_rng(draw(st.integers(0, 999)))
    coords = np.stack([seed.integers(0, s, n) for s in shape])
    values = (seed.normal(size=n) * 10.0 ** seed.integers(-300, 300, n)).astype(np.float64)
    if kind is np.int64:
        values = seed.integers(-(2**62), 2**62, n)
        coords, values = coords[:, :1], values[:1]
    return SparseTensor.from_coo("A", [f"R{k}" for k in range(len(shape))], shape, coords, values)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors(), st.sampled_from([".tns", ".tns.gz"]))
def test_frostt_round_trip(tmp_path: Path, tensor: SparseTensor, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    write_tensor(tensor, path, comment="two\nlines")
    again = read_file(path, tensor.name, tensor.ranks)
    same(again.tensor, tensor)
    assert again.comments[:2] == ("two", "lines")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors(order=2), st.sampled_from([".mtx", ".mtx.gz"]), st.booleans())
def test_matrix_market_round_trip(tmp_path: Path, tensor: SparseTensor, suffix: str, split: bool) -> None:
    if split:
        parts = tensor.values * (1 + 0.5j)
        tensor = SparseTensor.from_coo("A", tensor.ranks, tensor.shape, tensor.coords, parts)
    path = tmp_path / f"t{suffix}"
    write_tensor(tensor, path)
    same(read_tensor(path, tensor.name, tensor.ranks), tensor)


def same(found: SparseTensor, wanted: SparseTensor) -> None:
    assert (found.ranks, found.shape) == (wanted.ranks, wanted.shape)
    assert found.coords.tolist() == wanted.coords.tolist()
    assert found.values.tolist() == wanted.values.tolist()
    assert found.values.dtype == wanted.values.dtype


TOKENS = st.sampled_from(
    b"1 2 3 7 01 +2 -1 0 1.0 2.5 .5 1e3 1d3 1D-3 nan inf 1e999 0x1 1_0 x 9223372036854775808 \xff".split()
)
LINES = st.lists(TOKENS, min_size=1, max_size=4).flatmap(
    lambda t: st.sampled_from(
        [b" ".join(t), b"  ".join(t), b"\t".join(t) + b" ", b" " + b" ".join(t) + b"\r"]
    )
)
CLEAN = st.sampled_from([b"1 1 2.5", b"3 2 1", b"2  2\t7", b"", b"% note", b"# x", b"3 3 1e2 \r", b" 2 1 5"])
RULES = [
    Rule(2, "real", (3, 3)),
    Rule(2, "integer", (3, 3), "lower"),
    Rule(2, "real", (3, 3), "strict"),
    Rule(2, "pattern"),
    Rule(3, "pattern", (3, 3, 7)),
    Rule(1, "complex", (7,)),
    Rule(0, "real"),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(LINES, CLEAN, CLEAN, CLEAN), max_size=6), st.sampled_from(RULES), st.booleans())
def test_the_fast_reader_takes_what_the_slow_one_takes(lines: list[bytes], rule: Rule, end: bool) -> None:
    block = LineBlock(5, b"\n".join(lines) + b"\n" * end)
    faults = FileFaults("f")
    slow, fast = one_by_one(block, rule, faults), bulk(block, rule, small=0)
    if fast is not None:
        assert not faults.told
        assert fast.coords.tolist() == slow.coords.tolist()
        assert (fast.values.tolist(), fast.values.dtype) == (slow.values.tolist(), slow.values.dtype)


def test_clean_blocks_go_the_fast_way() -> None:
    clean = LineBlock(1, b"% note\n1 2 2.5\n\n3  1\t1e3 \r\n 2 2 1d-3\n")
    fast = bulk(clean, Rule(2, "real", (3, 3)), small=0)
    assert fast is not None
    assert fast.coords.tolist() == [[0, 2, 1], [1, 0, 1]]
    assert fast.values.tolist() == [2.5, 1000.0, 0.001]


@pytest.mark.slow
def test_several_blocks_make_one_tensor(tmp_path: Path) -> None:
    """Also a fault far down has its line."""
    n = 900_000
    coords = np.stack([np.arange(n) // 7, np.arange(n) % 7])
    tensor = SparseTensor.from_coo("t", ["I", "J"], [n, 7], coords, np.arange(1, n + 1) / 3)
    path = tmp_path / "t.mtx"
    write_tensor(tensor, path)
    assert path.stat().st_size > 16 << 20
    same(read_tensor(path), tensor)
    path.write_bytes(path.read_bytes() + b"1 1 nan\n")
    with pytest.raises(SpecError) as told:
        read_tensor(path)
    assert f"t.mtx:{n + 3}:5: value nan is not finite" in str(told.value)
