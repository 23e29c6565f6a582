"""Formats as they are written: what they mean, and what is told of wrong ones."""

from __future__ import annotations

import pytest

from polymodel.errors import Place, SpecError
from polymodel.sparse.formats import (
    CISS,
    CP,
    RLE,
    UOP,
    B,
    Format,
    NamedFormat,
    PerRank,
    U,
    Widths,
    footprint,
    parse_format,
    teaal_format,
)
from polymodel.spec.teaal.records import RankFormat, TensorFormat
from tests.faults import faults
from tests.sparse import data

IJ, IJK = ("I", "J"), ("I", "J", "K")
WIDTHS = Widths(data=8, index=6, pointer=20)
MEANT: list[tuple[object, tuple[str, ...], Format]] = [
    ("CSR", IJ, NamedFormat("CSR", WIDTHS)),
    ("csf", IJK, NamedFormat("CSF", WIDTHS)),
    ("COO(data=4, index=3)", IJ, NamedFormat("COO", Widths(4, 3, 20))),
    ({"format": "DCSR", "pointer": 16}, IJ, NamedFormat("DCSR", Widths(8, 6, 16))),
    ("CISS(parts=8)", IJK, CISS(8, WIDTHS)),
    ({"format": "CISS", "parts": 4, "assign": "nnz", "index": 5}, IJ, CISS(4, Widths(8, 5, 20), "nnz")),
    ("dense", IJ, NamedFormat("dense", WIDTHS)),
    ("U-U", IJ, PerRank((U(pbits=0), U(pbits=8)), IJ)),
    ("U-CP", IJ, PerRank((U(pbits=20), CP(cbits=6, pbits=8)), IJ)),
    ("UOP, C", IJ, PerRank((UOP(obits=20), CP(cbits=6, pbits=8)), IJ)),
    ("b", ("I",), PerRank((B(pbits=8),), ("I",))),
    (["B", "U"], IJ, PerRank((B(pbits=0), U(pbits=8)), IJ)),
    (
        ["B", {"format": "RLE", "rbits": 5, "overlong": "escape"}],
        IJ,
        PerRank((B(pbits=20), RLE(rbits=5, pbits=8, overlong="escape")), IJ),
    ),
    (
        {"J": {"format": "C", "cbits": 32, "pbits": 64, "fhbits": 2, "rhbits": 3}, "I": "U"},
        IJ,
        PerRank((U(pbits=20), CP(cbits=32, pbits=64, fhbits=2, rhbits=3)), IJ),
    ),
    (
        {"rank-order": ["J", "I"], "I": {"format": "U", "layout": "interleaved"}, "J": "CP"},
        IJ,
        PerRank((CP(cbits=6, pbits=0), U(pbits=8, layout="interleaved")), ("J", "I")),
    ),
]


@pytest.mark.parametrize(("written", "ranks", "meant"), MEANT, ids=[str(m[0]) for m in MEANT])
def test_what_is_written_is_meant(written: object, ranks: tuple[str, ...], meant: Format) -> None:
    assert parse_format(written, ranks, WIDTHS) == meant


WRONG: list[tuple[object, tuple[str, ...], list[str]]] = [
    ("CRS", IJ, ["A.format: format 'CRS' is not known | did you mean CSR?"]),
    ("CSR", IJK, ["A.format: CSR holds matrices, there are 3 ranks ['I', 'J', 'K'] | use CSF for tensors"]),
    (
        "CSR",
        ("I",),
        [
            "A.format: CSR holds matrices, I is the only rank here | "
            "use COO, or one format for the rank, such as [B]"
        ],
    ),
    (7, IJ, ["A.format: 7 is not a format | a name such as CSR, or one format per rank"]),
    (["U"], IJ, ["A.format: 1 formats for 2 ranks I, J | one per rank, outermost first"]),
    (
        {"I": "U", "JJ": {"format": "X", "cbit": 3}, "K": "C"},
        IJ,
        [
            "A.format.JJ: rank 'JJ' is not known | did you mean J?",
            "A.format.K: rank 'K' is not known | the tensor has I, J",
            "A.format: rank J has no format | give one to every rank",
            "A.format.JJ: format 'X' is not known | one of U, C, CP, B, RLE, UOP",
        ],
    ),
    (
        {"I": {"format": "C", "cbit": 3, "pbits": -1}, "J": {"format": "U", "pbits": 1.5, "layout": "x"}},
        IJ,
        [
            "A.format.I: C: key 'cbit' is not known | did you mean cbits?",
            "A.format.I.pbits: -1 is not a width | a whole number of bits, at least 0",
            "A.format.J.pbits: 1.5 is not a width | a whole number of bits, at least 0",
            "A.format.J.layout: layout 'x' is not known | one of contiguous, interleaved",
        ],
    ),
    (["U", "UOP"], IJ, ["A.format.J: UOP holds offsets into the rank below"]),
    ({"format": "CSR", "date": 3}, IJ, ["A.format: CSR: key 'date' is not known | did you mean data?"]),
    ("CISS", IJ, ["A.format.parts: CISS: parts is None | the number of lanes, at least 1: CISS(parts=8)"]),
    ("CISS(8)", IJ, ["A.format: '8' in 'CISS(8)' has no name | write CSR(data=8, index=16)"]),
    ("CISS(parts=8)", ("I",), ["A.format: CISS stores slices of tensors"]),
    (
        {"rank-order": ["J"], "I": "U", "J": "U"},
        IJ,
        ["A.format.rank-order: ['J'] is not an order of the ranks I, J | name each of them once"],
    ),
]


@pytest.mark.parametrize(("written", "ranks", "wanted"), WRONG, ids=[str(w[0]) for w in WRONG])
def test_all_that_is_wrong_is_told(written: object, ranks: tuple[str, ...], wanted: list[str]) -> None:
    place = Place("spec.yaml", 12, 5)
    with pytest.raises(SpecError) as told:
        parse_format(written, ranks, path="A.format", place=place)
    found = [f"{d.path}: {d.message} | {d.remedy}" for d in told.value.diagnostics]
    assert len(found) == len(wanted), found
    assert all(mine.startswith(given) for mine, given in zip(found, wanted, strict=True)), found
    assert all(d.place == place for d in told.value.diagnostics)


def test_records_of_teaal() -> None:
    """Widths that are not given are 0; the order is that of the stored tensor."""
    rows = (
        RankFormat("I", "U", pbits=32),
        RankFormat("J", "C", cbits=32, pbits=32, fhbits=8, rhbits=64, layout="interleaved"),
        RankFormat("K", "B", pbits=16),
    )
    found = teaal_format(TensorFormat("A", "default", rows, ("J", "I", "K")))
    assert found.ranks == ("J", "I", "K")
    assert found.rules == (
        CP(cbits=32, pbits=32, fhbits=8, rhbits=64, layout="interleaved"),
        U(pbits=32),
        B(pbits=16),
    )
    with faults("missing-key", at="format.A"):
        teaal_format(TensorFormat("A", "default", rows, ("L", "I")))


def test_a_footprint_takes_what_is_written() -> None:
    tensor = data.tensor("programme")
    assert footprint(tensor, "CSR").total == footprint(tensor, NamedFormat("CSR")).total
    assert footprint(tensor, ["U", "CP"]).total == 222 * 32 + 2486 * 64
    record = TensorFormat(
        "A", "default", (RankFormat("I", "U", pbits=32), RankFormat("J", cbits=32, pbits=32))
    )
    assert footprint(tensor, record).total == 222 * 32 + 2486 * 64
    with faults("unknown-choice", at="format"):
        footprint(tensor, "CSRR")


def test_a_format_on_ranks_that_the_tensor_does_not_have() -> None:
    rows = (RankFormat("I", "U"), RankFormat("M", "C"))
    with pytest.raises(SpecError) as told:
        footprint(data.tensor("programme"), teaal_format(TensorFormat("A", "default", rows)))
    assert [d.message for d in told.value.diagnostics] == [
        "default: rank M is none of ['I', 'J']",
        "default: rank J has no format",
    ]
