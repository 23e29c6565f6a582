"""Malformed files: what is told, where, and that all faults are told at once."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.files import read_file, read_tensor, write_tensor
from polymodel.sparse.files import text as files_text
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults

HEAD = "%%MatrixMarket matrix coordinate real general\n"


def told(path: Path, **options: object) -> list[str]:
    """Line:column message | remedy, one per fault."""
    with pytest.raises(SpecError) as found:
        read_file(path, **options)  # type: ignore[arg-type]  # options of the cases below
    assert all(d.place.file == str(path) for d in found.value.diagnostics)
    assert all(d.remedy for d in found.value.diagnostics if "more faults" not in d.message)
    return [shown(d) for d in found.value.diagnostics]


def shown(fault: Diagnostic) -> str:
    where = f"{fault.place.line}:{fault.place.column} " if fault.place.line else ""
    return f"{where}{fault.message}"


MARKET = {
    "empty": ("", ["the file is empty"]),
    "blank": ("\n1 1 1\n", ["the first line is empty"]),
    "no banner": ("3 3 1\n1 1 1\n", ["1:1 this is not a Matrix Market header"]),
    "short banner": (
        "%%MatrixMarket matrix coordinate real\n1 1 0\n",
        ["1:1 the header has 4 words, not 5"],
    ),
    "words": (
        "%%MatrixMarket tensor coordinated float symetric\n1 1 0\n",
        [
            "1:16 object tensor is not known",
            "1:23 layout coordinated is not known",
            "1:35 field float is not known",
            "1:41 symmetry symetric is not known",
        ],
    ),
    "array pattern": (
        "%%MatrixMarket matrix array pattern general\n1 1\n",
        ["1:1 an array has values, a pattern none"],
    ),
    "no sizes": (HEAD + "% only a comment\n", ["3:0 the line of sizes is missing"]),
    "two sizes": (HEAD + "3 3\n1 1 1\n", ["2:1 2 numbers in the line of sizes, not 3"]),
    "bad sizes": (
        HEAD + "-3 x 99999999999999999999\n",
        [
            "2:1 rows: -3 is below 1",
            "2:4 columns: x is not a whole number",
            "2:6 entries: 99999999999999999999",
        ],
    ),
    "few": (HEAD + "% c\n3 3 4\n1 1 1\n", ["3:1 the header says 4 entries, the file has 1: 3 too few"]),
    "many": (HEAD + "3 3 1\n1 1 1\n2 2 2\n", ["2:1 the header says 1 entries, the file has 2: 1 too many"]),
    "lines": (
        HEAD + "3 3 10\n1 1 1\n4 1 1\n0 2 1\n1 -2 1\n1.5 1 1\n1 1\n1 1 1 1\n1 2 nan\n1 2 -inf\n1 2 abc\n",
        [
            "4:1 coordinate 4 is outside 1..3",
            "5:1 coordinate 0: coordinates count from 1",
            "6:3 coordinate -2 is negative",
            "7:1 coordinate 1.5 is not a whole number",
            "8:1 2 numbers in the line, not 3",
            "9:1 4 numbers in the line, not 3",
            "10:5 value nan is not finite",
            "11:5 value -inf is not finite",
            "12:5 abc is not a number",
        ],
    ),
    "several, two in one line": (
        HEAD + "3 3 5\n2 4 1.0\n0 2 x\n",
        [
            "3:3 coordinate 4 is outside 1..3",
            "4:1 coordinate 0: coordinates count from 1",
            "4:5 x is not a number",
            "2:1 the header says 5 entries, the file has 2: 3 too few",
        ],
    ),
    "integer": (
        "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 1.5\n2 2 99999999999999999999\n",
        ["3:5 1.5 is not a whole number", "4:5 99999999999999999999 does not fit in 64 bits"],
    ),
    "not square": (
        "%%MatrixMarket matrix coordinate real symmetric\n3 2 1\n1 1 1\n",
        ["2:1 a symmetric matrix is square, this one is 3 x 2"],
    ),
    "both halves": (
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 2 1\n2 1 1\n3 3 1\n3 2 5\n",
        ["2:1 both halves of a symmetric matrix are stored: (2, 1) and (1, 2)"],
    ),
    "both halves, more": (
        "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 4\n1 2 1\n2 1 -1\n1 3 1\n3 1 -1\n",
        ["2:1 both halves of a skew-symmetric matrix are stored: (2, 1) and (1, 2) and 1 more such"],
    ),
    "skew diagonal": (
        "%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 1\n2 2 1\n",
        ["3:1 the entry is on the diagonal of a skew-symmetric matrix, which is zero"],
    ),
    "hermitian diagonal": (
        "%%MatrixMarket matrix coordinate complex hermitian\n3 3 1\n2 2 1 1\n",
        ["3:7 a diagonal entry of a hermitian matrix is real"],
    ),
    "array few": (
        "%%MatrixMarket matrix array real symmetric\n3 3\n1\n2\n",
        ["2:1 3 x 3 (symmetric) makes 6 values, the file has 2: 4 too few"],
    ),
    "array columns": (
        "%%MatrixMarket matrix array real general\n1 2\n1 2\n",
        ["3:1 2 numbers in the line, not 1"],
    ),
}


@pytest.mark.parametrize(("content", "wanted"), MARKET.values(), ids=MARKET)
def test_matrix_market(content: str, wanted: list[str], tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_text(content)
    found = told(path)
    assert len(found) == len(wanted)
    assert all(line.startswith(start) for line, start in zip(found, wanted, strict=True)), found


FROSTT = {
    "empty": ("", {}, ["the file has no entries"]),
    "comments only": ("# nothing\n", {}, ["the file has no entries"]),
    "one column": ("5\n", {}, ["1:1 1 number in the first entry: coordinates and a value are expected"]),
    "columns": ("1 1 1 5\n1 1 5\n", {}, ["2:1 3 numbers in the line, not 4"]),
    "from zero": (
        "0 1 5\n1 0 5\n",
        {},
        ["1:1 coordinate 0: coordinates count", "2:3 coordinate 0: coordinates count"],
    ),
    "fraction": ("1 1.0 5\n", {}, ["1:3 coordinate 1.0 is not a whole number"]),
    "nan": ("1 1 5\n1 2 NaN\n", {}, ["2:5 value NaN is not finite"]),
    "beyond the shape": ("1 4 5\n", {"shape": [3, 3]}, ["1:3 coordinate 4 is outside 1..3"]),
    "beyond 64 bits": (
        "1 9223372036854775808 5\n",
        {},
        ["1:3 coordinate 9223372036854775808 is outside 64 bits"],
    ),
    "ranks": (
        "1 1 1 5\n",
        {"ranks": ["I", "J"]},
        ["1:1 4 numbers in the first entry, not 2 coordinates and a value"],
    ),
    "shape": ("# shape: 3 0\n1 1 5\n", {}, ["1:1 the shape is not understood"]),
    "shape and ranks": ("# shape: 3 3\n1 1 1 5\n", {"ranks": "IJK"}, ["2:1 2 sizes for 3 ranks"]),
}


@pytest.mark.parametrize(("content", "options", "wanted"), FROSTT.values(), ids=FROSTT)
def test_frostt(content: str, options: dict[str, object], wanted: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.tns"
    path.write_text(content)
    found = told(path, **options)
    assert len(found) == len(wanted)
    assert all(line.startswith(start) for line, start in zip(found, wanted, strict=True)), found


def test_the_whole_text_of_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "3 3 2\n1 1 1.0\n3  7 2.0\n")
    with pytest.raises(SpecError) as found:
        read_tensor(path)
    assert str(found.value).splitlines() == [
        "1 fault in the input",
        f"{path}:4:4: coordinate 7 is outside 1..3",
        "    3  7 2.0",
        "       ^",
        "  remedy: mend it, or give larger sizes",
    ]


def test_many_faults_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "3 3 50\n" + "0 1 1\n" * 50)
    found = told(path)
    assert (len(found), found[-1]) == (21, "30 more faults up to line 52, where reading stopped")


def test_a_large_file_with_a_fault_in_each_line_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_text(HEAD + "3 3 4000000\n" + "0 1 1\n" * 4_000_000)
    assert told(path)[-1] == "1,000 more faults up to line 1,022, where reading stopped"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx"
    path.write_bytes(HEAD.encode() + b"% M\xfcller\n3 3 1\n1 \xff\xfe 1\n")
    assert told(path) == ["4:3 coordinate \ufffd\ufffd is not a whole number"]
    path.write_bytes(HEAD.encode() + b"% M\xfcller\n3 3 1\n1 2 1\n")
    assert read_file(path).comments == ("M\ufffdller",)
    path.write_bytes((HEAD + "1 1 0\n").encode("utf-16"))
    assert told(path) == ["the text is UTF-16, not UTF-8"]
    path.write_bytes((HEAD + "1 1 0\n").encode("utf-8-sig"))
    assert read_tensor(path).nnz == 0
    path.write_bytes(bytes(range(256)) * 20)
    assert "this is not a Matrix Market header" in told(path)[0]


BODY = (HEAD + "900 900 900\n" + "".join(f"{k} {901 - k} {k / 7}\n" for k in range(1, 901))).encode()


def test_a_packed_file_that_breaks_off(tmp_path: Path) -> None:
    """Faults before the break are told as well; the count, which must be wrong, is not."""
    path = tmp_path / "m.mtx.gz"
    path.write_bytes(gzip.compress(BODY)[:-400])
    (found,) = told(path)
    assert found.startswith("the packed file is cut off, after line ")
    assert 100 < int(found.split()[-1]) < 900
    path.write_bytes(gzip.compress(BODY.replace(b"\n2 899", b"\n0 899"))[:-400])
    assert told(path)[1] == "4:1 coordinate 0: coordinates count from 1"
    path.write_bytes(gzip.compress(BODY)[:20])
    assert told(path) == ["the packed file is cut off, after line 0"]
    for size in (0, 1, 2, 5):
        path.write_bytes(gzip.compress(BODY)[:size])
        assert "gzip" in told(path)[0] or "cut off" in told(path)[0]


def test_a_packed_file_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "m.mtx.gz"
    packed = bytearray(gzip.compress(BODY))
    packed[-6] ^= 255
    path.write_bytes(packed)
    assert told(path)[0].startswith("the packed file is damaged (CRC check failed")
    packed = bytearray(gzip.compress(BODY))
    packed[100] ^= 255
    path.write_bytes(packed)
    assert told(path)[0].startswith("the packed file is damaged (")
    path.write_bytes(BODY)
    assert told(path) == ["the file is not packed with gzip"]
    path.write_bytes(gzip.compress(BODY) + b"surplus")
    assert told(path)[0].startswith("the packed file is damaged (Not a gzipped file")


@pytest.mark.slow
def test_a_file_that_unfolds_to_too_much(tmp_path: Path) -> None:
    """Refused long before all is unfolded; one that is to be trusted can be read."""
    path = tmp_path / "t.tns.gz"
    with gzip.open(path, "wb", 9) as sink:
        sink.write(b"1 1 1\n")
        for _ in range(12):
            sink.write(b"\n" * (8 << 20))
    assert path.stat().st_size < 200_000
    (found,) = told(path)
    assert "more than 1,000,000 lines of comments and empty lines" in found
    assert read_tensor(path, limit=200 << 20).nnz == 1
    assert told(path, limit=1000) == ["the text has more than 1,000 bytes"]
    path = tmp_path / "m.mtx"
    path.write_bytes(BODY)
    assert told(path, limit=1000) == ["the text has more than 1,000 bytes"]


def test_a_line_without_an_end(tmp_path: Path) -> None:
    for content in (b"%" * (30 << 20), HEAD.encode() + b"1 1 1\n1 1 " + b"1" * (30 << 20)):
        path = tmp_path / "m.mtx"
        path.write_bytes(content)
        assert any("the line has more than 1,048,576 characters" in f for f in told(path))


@pytest.mark.parametrize("size", [0, 3, 30, 300])
@pytest.mark.thin(99)
def test_no_damage_passes_for_an_error_of_another_kind(size: int, tmp_path: Path) -> None:
    """Whatever is cut or flipped: a tensor or a SpecError, never a traceback from below."""
    plain = gzip.compress(BODY[:-1], mtime=0)
    path = tmp_path / "m.mtx.gz"
    for at in range(0, len(plain), 97):
        data = bytearray(plain)
        data[at] ^= 1 << (at % 8)
        path.write_bytes(data[: len(data) - size])
        try:
            assert read_tensor(path).nnz == 900
        except SpecError as error:
            faults = error.diagnostics
            assert all(d.place.file == str(path) for d in faults)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert told(tmp_path / "none.mtx") == ["cannot read the file: No such file or directory"]
    (tmp_path / "folder.tns").mkdir()
    assert told(tmp_path / "folder.tns") == ["a folder, not a file"]
    for name, remedy in (("a.csv", "name a .mtx"), ("a.tar.gz", "unpack it"), ("a", "name a .mtx")):
        with pytest.raises(SpecError, match=f"no format of tensors\n  remedy: {remedy}"):
            read_tensor(tmp_path / name)


def test_wrong_options_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as found:
        read_tensor(tmp_path / "a.mtx", ranks=["I", "I", "J"], shape=[3])
    assert len(found.value.diagnostics) == 4
    with faults("not-positive-integer", at="shape"):
        read_tensor(tmp_path / "a.tns", shape=[3, 0])


def test_what_cannot_be_written(tmp_path: Path) -> None:
    cube = SparseTensor.from_coo("A", "IJK", [2, 2, 2], [[0], [1], [0]], [1 + 1j])
    for name, reason in (
        ("a.mtx", "3 ranks: no matrix"),
        ("a.tns", "one value per entry"),
        ("a.txt", "no format"),
        ("none/a.mtx", "3 ranks"),
    ):
        with pytest.raises(SpecError, match=reason):
            write_tensor(cube, tmp_path / name)
    scalar = SparseTensor.from_coo("A", [], [], [], [1.0])
    with faults("wrong-count", at=""):
        write_tensor(scalar, tmp_path / "a.tns")
    with faults("unwritable-file", "a.tns", at=""):
        write_tensor(SparseTensor.from_coo("A", "I", [2], [[0]], [1]), tmp_path / "no" / "a.tns")


def test_the_largest_growth_of_deflate_is_above_the_bound() -> None:
    """So a file of zeros would pass a bound above it, and ours refuses it."""
    packed = zlib.compress(b"\n" * (16 << 20), 9)
    assert (16 << 20) / len(packed) > files_text._RATIO
