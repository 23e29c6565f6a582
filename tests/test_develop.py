"""The developers' map leads somewhere: the files and functions that it names exist, and it has every room."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from types import FrameType

import pytest

import polymodel as pm

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "develop").glob("*.md"))
NAMED = re.compile(r"`([\w./]+\.(?:py|toml|md))(?::(\w+))?`")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def places(name: str) -> list[Path]:
    """Files that a name without its first folders may mean: of the package, or of the repository."""
    return [p for p in (ROOT / "polymodel" / name, ROOT / name) if p.is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_files_and_functions_are_where_the_map_says(page: Path) -> None:
    beside = ""  # a name without a folder stands in the folder of the name before it
    for name, function in NAMED.findall(text_of(page)):
        found = places(name) or places(f"{beside}/{name}")
        assert found, f"{page.name}: {name}"
        beside = str(Path(name).parent) if "/" in name else beside
        if function:
            nodes = list(ast.walk(ast.parse(text_of(found[0]))))
            defined = {n.name for n in nodes if hasattr(n, "name")}
            defined |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            assert function in defined, f"{page.name}: {name}:{function}"


def test_the_recipe_for_one_test_names_one_that_is_there() -> None:
    recipes = text_of(ROOT / "docs" / "develop" / "recipes.md")
    file, part = re.findall(r"pytest -n 0 (\S+) -k (\w+)", recipes)[0]
    assert re.search(rf"def test_\w*{part}", text_of(ROOT / file))


def test_every_room_is_on_the_map() -> None:
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["id"] == "rooms")
    rooms = {room.strip("() ") for layer in layers for room in layer.split("|")}
    packages = {room for room in rooms if (ROOT / "polymodel" / room).is_dir()}
    told = text_of(ROOT / "docs" / "develop" / "index.md")
    assert packages
    assert {room for room in packages if f"`{room}`" not in told} == set()


NODES = [
    {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
    {"type": "Temporal", "rank_variable": "m", "tile_shape": 2},
    {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
    {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
]


def _misspelt() -> None:
    with pytest.raises(pm.SpecError) as raised:
        pm.load({"workload": {"rank_sizes": {"M": 2}, "einsumz": []}})
    assert "did you mean" in str(raised.value)


@pytest.mark.slow
def test_what_the_map_names_is_what_runs() -> None:
    """The functions named where a fill is counted, a joule added, a mapping pruned, a message worded."""
    called: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    spec = pm.load("matmul", "simple_two_level", {"mapping": {"nodes": NODES}}, M=8, N=4, K=4)
    sys.setprofile(profile)
    try:
        for engine in ("exact", "symbolic", "enumerate"):
            assert pm.evaluate(spec, engine=engine).total_energy > 0
        assert len(pm.explore(spec, objectives=["energy", "latency"]))
        _misspelt()
    finally:
        sys.setprofile(None)
    page = text_of(ROOT / "docs/develop/index.md")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| Where")]
    asked = re.compile("a fill counted|a joule added|Einsum pruned|partial mappings pruned|message worded")
    # Copies, tilings, faults of one text and searches of many rounds are not here; CODES is a table.
    elsewhere = {"_copy", "play_copies", "energy_table", "_bounded", "CODES", "TextFault"}
    named = [name for row in rows if asked.search(row[1]) for name in NAMED.findall(row[2]) if name[1]]
    assert len(named) > 15
    for file, function in named:
        if function not in elsewhere:
            assert (str(ROOT / "polymodel" / file), function) in called, f"{file}:{function}"
