"""Amounts of data in bits or bytes: in text, on pages and plots; tables as data have bits either way."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import polymodel as pm
from polymodel.cli.app import main
from polymodel.quantities import engineering, in_units
from tests.faults import faults


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    with pm.units("bits"):
        yield


@pytest.fixture(scope="module")
def report() -> pm.Report:
    return pm.evaluate(pm.load("simple_two_level", "matmul_chain_2/tiled_fused"))


@pytest.mark.parametrize(
    ("value", "unit", "bits", "data"),
    [
        (32768, "bit", "32.77 kb", "4096 B"),
        (12, "bit", "12 b", "1.5 B"),
        (8 * 10**30, "bit", "8000000 Yb", "1000000 YB"),
        (8e9, "bit/s", "8 Gb/s", "1 GB/s"),
        (2.5, "operation/bit", "2.5 op/b", "20 op/B"),
        (3.5e-6, "J", "3.5 µJ", "3.5 µJ"),
        (float("inf"), "bit", "inf", "inf"),
    ],
)
def test_a_figure_in_either_unit(value: float, unit: str, bits: str, data: str) -> None:
    assert engineering(value, unit) == bits
    with pm.units("bytes"):
        assert engineering(value, unit) == data
    assert engineering(value, unit) == bits


def test_it_stays_until_it_is_changed_and_a_block_undoes_it() -> None:
    shown = pm.units("bytes")
    assert repr(shown) == "amounts of data are shown in bytes"
    assert in_units("bit") == ("B", 1 / 8)
    with pm.units("bits"):
        assert in_units("bit") == ("b", 1.0)
    assert in_units("bit") == ("B", 1 / 8)
    with faults("unknown-choice", "words", at=""):
        pm.units("words")


def test_text_and_page_have_bytes_and_tables_as_data_have_bits(report: pm.Report) -> None:
    data, frame = report.to_json(), report.accesses
    with pm.units("bytes"):
        text = str(report)
        page = report.to_html(plots=False)
        assert report.to_json() == data
        assert report.accesses.equals(frame)
    assert "peak bytes in the busiest instance" in text
    assert "T0 2048 B, T2 2560 B" in text
    assert not re.search(r"\d [kMG]?b\b", text)
    assert "2048 B" in page


def test_plots_have_their_axes_in_the_same_unit(report: pm.Report) -> None:
    with pm.units("bytes"):
        ax = report.plot("roofline")
        assert "operations per byte" in ax.get_xlabel()
        (first, *_) = [line for line in ax.lines if len(line.get_xdata()) == 1]
        assert first.get_xdata()[0] == pytest.approx(8 * report.costs.roofline[0].intensity)
        sizes = report.plot("working_sets")
        assert "(bytes, logarithmic)" in sizes.get_xlabel()
        assert sizes.xaxis.get_major_formatter()(8000.0, 0) == "1 kB"
        assert {f"{place / 8:e}"[0:2] for place in sizes.get_xticks() if place} <= {"1.", "2.", "5."}
    assert "operations per bit" in report.plot("roofline").get_xlabel()


def test_the_option_is_of_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "simple_two_level", "matmul_chain_2/tiled_fused", "--table", "working_sets"]
    assert main([*command, "--units", "bytes"]) == 0
    assert "4336 B" in capsys.readouterr().out
    assert main(command) == 0
    assert "34.69 kb" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, "--units", "words"])
    assert "none of bits, bytes" in capsys.readouterr().err


def test_what_does_not_fit_is_told_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    large = ["simple_two_level", "matmul/weight_stationary", "--var", "N=4096", "--var", "K=4096"]
    told = r"need (\d+) {} \(tile\), have (\d+), short of (\d+)"
    figures = []
    for unit in ("bits", "bytes"):
        main(["evaluate", *large, "--units", unit])
        found = re.search(told.format(unit), capsys.readouterr().out)
        assert found is not None
        figures.append([int(n) for n in found.groups()])
    assert figures[0] == [8 * n for n in figures[1]]
