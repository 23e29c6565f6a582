"""Every broken spec in tests/bad is refused with the text beside it; POLYMODEL_REGENERATE=1 writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import polymodel as pm

BAD = Path(__file__).parent.parent / "bad"
FILES = sorted(BAD.glob("*.yaml"))


def refusal(name: str) -> pm.SpecError:
    start = time.process_time()
    with pytest.raises(pm.SpecError) as caught:
        pm.load(name)
    assert time.process_time() - start < 20
    return caught.value


def test_the_corpus_is_complete() -> None:
    assert len(FILES) >= 60
    assert {f.stem for f in FILES} == {f.stem for f in BAD.glob("*.txt")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_refused_with_its_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    error = refusal(path.name)
    golden = path.with_suffix(".txt")
    if os.environ.get("POLYMODEL_REGENERATE"):
        golden.write_text(f"{error}\n", encoding="utf-8")
    assert f"{error}\n" == golden.read_text(encoding="utf-8")
    for found in error.diagnostics:
        place = found.place
        assert place.file == path.name
        assert place.line > 0
        assert 0 < place.column <= len(place.text) + 1
        assert place.text.split("    # as rendered")[0].strip() or path.stem in ("yaml_tab",)
        assert found.remedy
        assert "\n" not in found.message
        assert any(line.strip() == "^" for line in found.render().splitlines())
