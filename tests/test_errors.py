"""What notebooks show of an error: the caller's line and the message, no frames of ours."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.errors import CODES, InternalError, PolymodelError

CODES_PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "codes.md"


def test_wrong_input_shows_the_callers_line_and_no_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conv.yaml").write_text("workload: {}", encoding="utf-8")
    with pytest.raises(pm.SpecError) as fault:
        pm.load("conv.yml")
    where, said = fault.value._render_traceback_()
    assert where.startswith("line ")
    assert where.endswith('pm.load("conv.yml")')
    assert said == f"SpecError: {fault.value}"
    assert "did you mean conv.yaml?" in said


def test_the_line_is_the_callers_wherever_the_error_is_raised(tmp_path: Path) -> None:
    """Also below a `with`, whose frames are those of the standard library, and beside the package."""
    report = pm.evaluate(pm.load("matmul", "simple_two_level", "matmul/output_stationary"))
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(pm.SpecError) as fault:
        report.to_csv(tmp_path / "taken")
    assert fault.value._render_traceback_()[0].endswith('report.to_csv(tmp_path / "taken")')
    beside = f"{Path(pm.__file__).parent}-work{os.sep}mine.py"
    code = compile("value = 1\nraise pm.SpecError([])\n", beside, "exec")
    linecache.cache[beside] = (0, None, ["value = 1\n", "raise pm.SpecError([])\n"], beside)
    with pytest.raises(pm.SpecError) as fault:
        exec(code, {"pm": pm})
    assert fault.value._render_traceback_()[0] == "line 2: raise pm.SpecError([])"


def test_refusals_do_too() -> None:
    with pytest.raises(pm.Refused) as refusal:
        raise pm.Refused("this is not counted", "write that")
    assert refusal.value._render_traceback_()[-1] == "Refused: this is not counted\n  remedy: write that"


def test_a_bug_of_our_own_shows_all_frames() -> None:
    def inner() -> None:
        raise InternalError("two engines differ")

    with pytest.raises(PolymodelError) as bug:
        inner()
    shown = "".join(bug.value._render_traceback_())
    assert "in inner" in shown
    assert "Traceback" in shown


def test_the_page_of_codes_has_the_table() -> None:
    """POLYMODEL_REGENERATE=1 writes the page anew."""
    page = CODES_PAGE.read_text(encoding="utf-8")
    head, mark, _ = page.partition("| code | what it means |\n|---|---|\n")
    made = head + mark + "".join(f"| `{code}` | {meaning} |\n" for code, meaning in CODES.items())
    if os.environ.get("POLYMODEL_REGENERATE"):
        CODES_PAGE.write_text(made, encoding="utf-8")
    assert mark
    assert page == made
