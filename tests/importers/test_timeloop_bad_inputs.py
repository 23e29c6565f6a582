"""Every broken Timeloop file in tests/bad/timeloop is refused with its text; no file is a traceback.

POLYMODEL_REGENERATE=1 writes the texts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.cli import main

BAD = Path(__file__).parent.parent / "bad" / "timeloop"
FILES = sorted(BAD.glob("*.yaml"))
WHOLE = Path(__file__).parent / "timeloop" / "sparse.yaml"


def test_the_corpus_is_complete() -> None:
    assert len(FILES) >= 15
    assert {f.stem for f in FILES} == {f.stem for f in BAD.glob("*.txt")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_refused_with_its_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(path.name)
    golden = path.with_suffix(".txt")
    if os.environ.get("POLYMODEL_REGENERATE"):
        golden.write_text(f"{caught.value}\n", encoding="utf-8")
    assert f"{caught.value}\n" == golden.read_text(encoding="utf-8")
    for found in caught.value.diagnostics:
        assert found.remedy
        assert "\n" not in found.message
        if path.stem != "nothing_of_timeloop":
            assert found.place.file == path.name
            assert found.place.line > 0
            assert any(line.strip() == "^" for line in found.render().splitlines())


def test_the_command_tells_every_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BAD)
    assert main(["import", "timeloop", "problem_wrong.yaml"]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.count("remedy:") >= 8


def nodes_of(tree: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(p for key, value in inner for p in nodes_of(value, (*path, key)))]


def put(tree: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


TREE: Any = yaml.safe_load(WHOLE.read_text(encoding="utf-8").replace("!Component", ""))
STRANGE = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        0.5,
        10**30,
        float("inf"),
        "",
        "M",
        "A",
        "((",
        "Ω",
        [],
        {},
        [[]],
        [None],
        {"M": []},
        {"x": {}},
    ]
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(nodes_of(TREE)), STRANGE)
def test_no_value_in_any_place_is_a_traceback(path: tuple[str | int, ...], value: Any) -> None:
    changed = put(TREE, path, value)
    if not isinstance(changed, dict):
        return
    try:
        imported = pm.import_timeloop(changed)
    except pm.SpecError:
        return  # told, not thrown
    assert imported.spec.raw_workload is not None or imported.spec.raw_arch is not None
