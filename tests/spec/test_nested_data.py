"""Python data that holds itself, is nested without end or grows without end; and numbers that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec import faults as spec_faults
from polymodel.spec.teaal.schema import read_teaal
from tests.faults import faults

WORKLOAD = "workload: {rank_sizes: {M: %s}, bits_per_value: {All: 8}, einsums: ['Z[m] = A[m]']}\n"


def itself() -> dict[str, object]:
    found: dict[str, object] = {}
    found["workload"] = found
    return found


def deep() -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(3000):
        found = {"workload": found}
    return found


def doubled() -> list[object]:
    """A few lists that stand for 2**40 values."""
    found: list[object] = [1]
    for _ in range(40):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    ("made", "code", "at"),
    [
        (itself, "too-large", "workload"),
        (deep, "too-large", "workload"),
        (lambda: {"workload": doubled()}, "too-large", "workload"),
        (lambda: {"workload": {"rank_sizes": {"M": deep()}}}, "too-large", "workload"),
        (lambda: {"symbols": {"S": doubled()}}, "too-large", "symbols"),
        (lambda: {"workload": (x for x in "ab")}, "wrong-type", "workload"),
    ],
)
def test_data_without_end_is_refused(made: Callable[[], dict[str, object]], code: str, at: str) -> None:
    with faults(code, at=at):
        pm.load(made())


def test_values_by_name_that_are_nested_without_end() -> None:
    for given in (itself(), deep()):
        with faults("unknown-name", at="symbols.a"):
            pm.load("matmul", symbols={"a": given})  # type: ignore[dict-item]  # that is it
        with faults("unused-variable", at=""):
            pm.load("matmul", variables={"a": given})


def test_a_hexadecimal_number_has_digits(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for text in ("0x_", "-0x__"):
        file.write_text(WORKLOAD % text, encoding="utf-8")
        with faults("syntax-error", at="workload.rank_sizes.M"):
            pm.load(file)
    file.write_text(WORKLOAD % "0x_1_0", encoding="utf-8")
    assert pm.load(file).workload.rank_sizes == (("M", 16),)


def test_data_of_other_tools_that_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two references to itself make twice as many values at each level; a lower bound saves time."""
    monkeypatch.setattr(spec_faults, "MAX_VALUES", 2000)
    both: dict[str, object] = {}
    both |= {"shape": both, "instance": both}
    for given in ({"problem": both}, {"problem": doubled()}):
        with faults("too-large", "2000", at=""):
            pm.import_timeloop(given)
        with faults("too-large", "2000", at=""):
            read_teaal({"einsum": given})
