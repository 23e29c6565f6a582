"""What commands write, where they may not, where there is no room, and where they are killed on the way."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import save_model
from pyarrow import parquet

from tests.fuzz.forked import DIES, FULL, HUMBLE, Parent
from tests.fuzz.lines import MATRIX, SPEC
from tests.importers.onnx_models import model, node

TIMELOOP = Path(__file__).parents[1] / "importers" / "timeloop" / "output_stationary.yaml"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rights and limits of processes")
# Every option of every command that writes: one that lacks is told by `test_every_writing_option_is_tried`.
WRITING = (
    "evaluate s.yaml --set TM=4 --out saved --parquet",
    "evaluate s.yaml --set TM=4 --html saved/report.html",
    "show s.yaml --set TM=4 --out saved",
    "timeline s.yaml --set TM=4 --component GLB --out saved",
    "sweep s.yaml --symbol TM=divisors(m) --store saved",
    "sweep s.yaml --symbol TM=divisors(m) --out saved",
    "explore e.yaml --objective energy --out saved",
    "explore e.yaml --objective energy --store saved",
    "tile a.mtx --capacity 3 --out saved",
    "tile a.mtx --capacity 3 --export saved",
    "sparse a.mtx --tiles 2 --out saved",
)
ALONE = (
    "show s.yaml --set TM=4 --html saved/page.html",
    "compare s.yaml s.yaml --set TM=4 --html saved/page.html",
    "timeline s.yaml --set TM=4 --component GLB --html saved/page.html",
    "sweep s.yaml --symbol TM=divisors(m) --html saved/page.html",
    "explore e.yaml --objective energy --html saved/page.html",
    "tile a.mtx --capacity 3 --plot saved/tiles.svg",
    "execute teaal/gamma A=a.mtx B=a.mtx --out saved",
    "execute teaal/gamma A=a.mtx B=a.mtx --html saved/page.html",
    "traffic teaal/gamma_traffic A=a.mtx B=a.mtx --out saved",
    "traffic teaal/gamma_traffic A=a.mtx B=a.mtx --html saved/page.html",
    "schema --out saved",
    "new saved/new.yaml --schema",
    "import timeloop t.yaml --out saved/new.yaml",
    "import onnx a.onnx --out saved/new.yaml",
)
EVERY = (*WRITING, *ALONE)


def made(tmp_path: Path, name: str, *, folder: bool = True) -> Path:
    """A folder with a spec, one without a mapping, a matrix, and where to write."""
    here = tmp_path / name
    (here / "saved").mkdir(parents=True) if folder else here.mkdir(parents=True)
    (here / "s.yaml").write_text(SPEC, encoding="utf-8")
    unmapped = SPEC.partition("mapping:")[0].replace("symbols: {TM: null}\n", "")
    (here / "e.yaml").write_text(unmapped, encoding="utf-8")
    (here / "a.mtx").write_text(MATRIX, encoding="utf-8")
    shutil.copy(TIMELOOP, here / "t.yaml")
    save_model(model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"]), here / "a.onnx")
    return here


def told_once(errors: str) -> bool:
    """One message, with what to do; no traceback."""
    return "Traceback" not in errors and errors.count("cannot write") == 1 and "remedy: " in errors


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    """It has run every line once, where nothing is in the way."""
    running = Parent(tmp_path_factory.mktemp("told"))
    for number, line in enumerate(WRITING):
        code, errors = running.run(made(tmp_path_factory.mktemp("fine"), str(number)), line, None)
        assert code == 0, (line, errors)
    yield running
    running.end()


@pytest.mark.parametrize("line", WRITING)
def test_a_folder_that_may_not_be_written_to(line: str, parent: Parent, tmp_path: Path) -> None:
    """Neither a folder that is there, nor one that would have to be made; the superuser is asked to obey."""
    here = made(tmp_path, "here")
    (here / "saved").chmod(0o555)
    for words in (line, line.replace("saved", "saved/deeper")):
        code, errors = parent.run(here, words, HUMBLE)
        assert code == 2, errors
        assert told_once(errors), errors
        assert not list((here / "saved").iterdir())


@pytest.mark.parametrize("line", [w for w in WRITING if "--export" not in w and "--html" not in w])
def test_a_disk_that_is_full(line: str, parent: Parent, tmp_path: Path) -> None:
    here = made(tmp_path, "here", folder=False)
    code, errors = parent.run(here, line, FULL)
    assert code == 2, errors
    assert told_once(errors), errors
    assert "make room" in errors
    assert not list(here.rglob("*.new*"))
    for file in here.rglob("*.parquet"):
        assert parquet.read_table(file).num_rows >= 0


# Before, and what is written over it.
KILLED = (
    ("sweep s.yaml --symbol TM=2,4 --out saved", "sweep s.yaml --symbol TM=divisors(m) --out saved"),
    ("explore e.yaml --objective energy --out saved", "explore e.yaml --objective latency --out saved"),
    ("tile a.mtx --capacity 3 --export saved", "tile a.mtx --capacity 4 --export saved"),
)
SECONDS = re.compile(rb"\d+(\.\d+)? m?s\b|,[^,]*\d(?=\n)")  # in words, and the last column of stages.csv


def held(folder: Path) -> dict[str, bytes]:
    """Files under final names, without the seconds that some tell."""
    files = [f for f in folder.iterdir() if not f.name.startswith(".")]
    return {f.name: SECONDS.sub(b"", f.read_bytes()) for f in files}


@pytest.mark.parametrize(("old", "new"), KILLED, ids=[old.split()[0] for old, _ in KILLED])
def test_killed_on_the_way(old: str, new: str, parent: Parent, tmp_path: Path) -> None:
    """Each file is the old one or the new one, whole; what is left of the one at work is hidden."""
    first, last, killed = (made(tmp_path, name) for name in ("first", "last", "killed"))
    assert parent.run(first, old)[0] == 0
    assert parent.run(last, new)[0] == 0
    before, after = held(first / "saved"), held(last / "saved")
    for at in (1, 2, 3, 4, 6):
        shutil.rmtree(killed / "saved")
        shutil.copytree(first / "saved", killed / "saved")
        assert parent.run(killed, new, DIES.format(at=at))[0] == -signal.SIGKILL
        for name, data in held(killed / "saved").items():
            assert data in (before.get(name), after.get(name)), (at, name)
        hidden = [f.name for f in (killed / "saved").iterdir() if f.name.startswith(".")]
        assert all(".new" in name for name in hidden)
        assert len(hidden) <= 2
    assert parent.run(killed, new)[0] == 0
    assert after.items() <= held(killed / "saved").items()


def test_an_index_tells_of_the_tiles_beside_it(parent: Parent, tmp_path: Path) -> None:
    """Of an export that is killed there is no index: the one of before would tell of tiles that are gone."""
    old, new = KILLED[-1]
    here = made(tmp_path, "here")
    index = here / "saved" / "index.json"
    assert parent.run(here, old)[0] == 0
    assert index.exists()
    assert parent.run(here, new, DIES.format(at=6))[0] == -signal.SIGKILL
    assert list((here / "saved").glob("tile_*.mtx"))
    assert not index.exists()
    assert parent.run(here, new)[0] == 0
    tiles = json.loads(index.read_text(encoding="utf-8"))["tiles"]
    assert all((here / "saved" / file).exists() for tile in tiles for file in tile["files"].values())
