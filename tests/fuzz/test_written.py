"""What commands write, where they may not, where there is no room, and where they are killed on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from onnx import save_model
from pyarrow import parquet

from polymodel.spec.files import JOURNAL
from tests.fuzz.forked import DIES, FULL, HUMBLE, Parent
from tests.fuzz.lines import MATRIX, SPEC
from tests.importers.onnx_models import model, node
from tests.seeds import seeds

TIMELOOP = Path(__file__).parents[1] / "importers" / "timeloop" / "output_stationary.yaml"
ZIGZAG = TIMELOOP.parents[1] / "zigzag/layers.yaml"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rights and limits of processes")
# Every option of every command that writes: one that lacks is told by `test_every_writing_option_is_tried`.
FIRST = (
    "sweep s.yaml --symbol TM=divisors(m) --store saved",
    "evaluate s.yaml --set TM=4 --html saved/report.html",
    "tile a.mtx --capacity 3 --export saved",
    "import timeloop t.yaml --out saved/new.yaml",
    "explore e.yaml --objective energy --out saved",
    "timeline s.yaml --set TM=4 --component GLB --out saved",
)
ACCELFORGE = """\
workload:
  rank_sizes: {M: 8, N: 4, K: 4}
  bits_per_value: {All: 8}
  einsums:
  - name: Z
    tensor_accesses:
    - {name: A, projection: [m, k]}
    - {name: B, projection: [k, n]}
    - {name: Z, projection: [m, n], output: True}
"""
EVERY = (
    "evaluate s.yaml --set TM=4 --out saved --parquet",
    "evaluate s.yaml --set TM=4 --html saved/report.html",
    "show s.yaml --set TM=4 --out saved",
    "forms s.yaml --out saved",
    "forms s.yaml --html saved/page.html",
    "timeline s.yaml --set TM=4 --component GLB --out saved",
    "sweep s.yaml --symbol TM=divisors(m) --store saved",
    "sweep s.yaml --symbol TM=divisors(m) --out saved",
    "explore e.yaml --objective energy --out saved",
    "explore e.yaml --objective energy --store saved",
    "codesign h.yaml --hardware S=400,4000 --objective energy --out saved",
    "codesign h.yaml --hardware S=400,4000 --objective energy --store saved",
    "codesign h.yaml --hardware S=400,4000 --objective energy --html saved/page.html",
    "distribute h.yaml --chips 2 --split m --out saved",
    "distribute h.yaml --chips 2 --split m --store saved",
    "distribute h.yaml --chips 2 --split m --html saved/page.html",
    "gallery timeloop_page --html saved/page.html",
    "gallery timeloop_page --out saved",
    "tile a.mtx --capacity 3 --out saved",
    "tile a.mtx --capacity 3 --export saved",
    "sparse a.mtx --tiles 2 --out saved",
    "show s.yaml --set TM=4 --html saved/page.html",
    "compare s.yaml s.yaml --set TM=4 --html saved/page.html",
    "compare s.yaml s.yaml --set TM=4 --out saved",
    "timeline s.yaml --set TM=4 --component GLB --html saved/page.html",
    "sweep s.yaml --symbol TM=divisors(m) --html saved/page.html",
    "explore e.yaml --objective energy --html saved/page.html",
    "tile a.mtx --capacity 3 --plot saved/tiles.svg",
    "execute teaal/gamma A=a.mtx B=a.mtx --out saved",
    "execute teaal/gamma A=a.mtx B=a.mtx --html saved/page.html",
    "traffic teaal/gamma_traffic A=a.mtx B=a.mtx --out saved",
    "traffic teaal/gamma_traffic A=a.mtx B=a.mtx --html saved/page.html",
    "tensaurus SpMM a.mtx --across 4 --out saved",
    "tensaurus SpMM a.mtx --across 4 --html saved/page.html",
    "schema --out saved",
    "new saved/new.yaml --schema",
    "new saved/new.yaml --from gram",
    "export accelforge s.yaml --set TM=4 --out saved",
    "import timeloop t.yaml --out saved/new.yaml",
    "import onnx a.onnx --out saved/new.yaml",
    "import accelforge f.yaml --out saved/new.yaml",
    "import zigzag z.yaml --out saved/new.yaml",
)
ORDERED = (*FIRST, *(line for line in EVERY if line not in FIRST))
SOME = seeds(3, ORDERED)


def made(tmp_path: Path, name: str, *, folder: bool = True) -> Path:
    """A folder with a spec, one without a mapping, a matrix, and where to write."""
    here = tmp_path / name
    (here / "saved").mkdir(parents=True) if folder else here.mkdir(parents=True)
    (here / "s.yaml").write_text(SPEC, encoding="utf-8")
    unmapped = SPEC.partition("mapping:")[0].replace("symbols: {TM: null}\n", "")
    (here / "e.yaml").write_text(unmapped, encoding="utf-8")
    sized = unmapped.replace("size: 4000", "size: S, area: 1.0e-12 * S")
    (here / "h.yaml").write_text(f"symbols: {{S: 4000}}\n{sized}", encoding="utf-8")
    (here / "a.mtx").write_text(MATRIX, encoding="utf-8")
    shutil.copy(TIMELOOP, here / "t.yaml")
    (here / "f.yaml").write_text(ACCELFORGE, encoding="utf-8")
    shutil.copy(ZIGZAG, here / "z.yaml")
    save_model(model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"]), here / "a.onnx")
    return here


def told_once(errors: str) -> bool:
    """One message, with what to do; no traceback."""
    return "Traceback" not in errors and errors.count("cannot write") == 1 and "remedy: " in errors


@pytest.mark.parametrize("line", SOME)
def test_a_folder_that_may_not_be_written_to(line: str, parent: Parent, tmp_path: Path) -> None:
    """Neither a folder that is there, nor one that would have to be made; the superuser is asked to obey."""
    here = made(tmp_path, "here")
    (here / "saved").chmod(0o555)
    for words in (line, line.replace("saved", "saved/deeper")):
        code, errors = parent.run(here, words, HUMBLE)
        assert code == 2, errors
        assert told_once(errors), errors
        assert not list((here / "saved").iterdir())


# Bytes, where files are short.
ROOM = {"traffic": 250, "timeloop": 1000, "onnx": 300, "accelforge": 150}


@pytest.mark.parametrize("line", SOME)
def test_a_disk_that_is_full(line: str, parent: Parent, tmp_path: Path) -> None:
    here = made(tmp_path, "here", folder="saved/" in line)
    code, errors = parent.run(
        here, line, FULL.format(room=next((n for word, n in ROOM.items() if word in line), 1500))
    )
    assert code == 2, errors
    assert told_once(errors), errors
    assert "make room" in errors
    assert not list(here.rglob("*.new*"))
    for file in here.rglob("*.parquet"):
        assert parquet.read_table(file).num_rows >= 0


# What is written before, so that the line itself writes something else over it.
OTHERWISE = {
    "divisors(m)": "2,4",
    "TM=4": "TM=2",
    "energy": "latency",
    "capacity 3": "capacity 4",
    "tiles 2": "tiles 3",
}
NEW = ("new ", "import ", "--store")  # of commands that write over nothing of another run
EXPORT = "tile a.mtx --capacity 3 --export saved"


def before(line: str) -> str:
    """A line that writes the same files with other contents, where there is one."""
    for words, other in OTHERWISE.items():
        line = line.replace(words, other)
    return line


# In words, of tilers in tiling.json, and the last column of stages.csv.
SECONDS = re.compile(rb'\d+(\.\d+)? m?s\b|,[^,]*\d(?=\n)|"search_s": [^,\n]*')


# Pictures have identifiers drawn by lot, and stores seconds.
ENDS = {".html": b"</html>\n", ".svg": b"</svg>\n", ".parquet": b"PAR1"}
OWN = ("lock.json", JOURNAL)  # of a store that is in use: no result


def held(folder: Path) -> dict[str, bytes]:
    """Files under final names, without the seconds that some tell; of pictures and parquet that they end."""
    found = {}
    for file in (f for f in folder.rglob("*") if f.is_file()):
        if not file.name.startswith(".") and file.name not in OWN:
            data, end = file.read_bytes(), ENDS.get(file.suffix, b"")
            assert data.endswith(end), file.name
            name = "found" if file.name.startswith("found-") else file.name  # their names are drawn by lot
            found[str(file.parent.relative_to(folder) / name)] = end or SECONDS.sub(b"", data)
    return found


def hidden(folder: Path) -> list[str]:
    """Files that were being written."""
    return [f.name for f in folder.rglob(".*") if ".new" in f.name]


# At which file, as it is opened or renamed, a command dies; the slow suite lets it die at each of the first.
DEATHS = (1, 2, 3, 4, 6) if os.environ.get("POLYMODEL_LONG") else (1, 3)


@pytest.mark.parametrize("line", seeds(2, ORDERED))
def test_killed_on_the_way(line: str, parent: Parent, tmp_path: Path) -> None:
    """Each file is the old one or the new one, whole; what is left of the one at work is hidden."""
    first, last, killed = (made(tmp_path, name) for name in ("first", "last", "killed"))
    anew = any(word in line for word in NEW)
    if not anew:
        assert parent.run(first, before(line))[0] == 0
    assert parent.run(last, line)[0] == 0
    old, new = held(first / "saved"), held(last / "saved")
    for at in DEATHS:
        shutil.rmtree(killed / "saved")
        shutil.copytree(first / "saved", killed / "saved")
        code, errors = parent.run(killed, line, DIES.format(at=at))
        if code == 0 and at > 3:  # one file is opened, brought to the disk, and renamed
            break
        assert code == -signal.SIGKILL, errors
        for name, data in held(killed / "saved").items():
            assert data in (old.get(name), new.get(name)), (at, name)
        assert len(hidden(killed / "saved")) <= 2
        if "new.yaml" in line:  # which is refused where it has become whole
            (killed / "saved" / "new.yaml").unlink(missing_ok=True)
        assert parent.run(killed, line)[0] == 0
        assert new.items() <= held(killed / "saved").items()
        assert not hidden(killed / "saved")  # the next run clears up


def test_an_index_tells_of_the_tiles_beside_it(parent: Parent, tmp_path: Path) -> None:
    """Of an export that is killed there is no index: the one of before would tell of tiles that are gone."""
    here = made(tmp_path, "here")
    index = here / "saved" / "index.json"
    assert parent.run(here, before(EXPORT))[0] == 0
    assert index.exists()
    assert parent.run(here, EXPORT, DIES.format(at=6))[0] == -signal.SIGKILL
    assert list((here / "saved").glob("tile_*.mtx"))
    assert not index.exists()
    assert parent.run(here, EXPORT)[0] == 0
    tiles = json.loads(index.read_text(encoding="utf-8"))["tiles"]
    assert all((here / "saved" / file).exists() for tile in tiles for file in tile["files"].values())
