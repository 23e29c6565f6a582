"""Files that are none, that never end, or that cannot be written: told at once, and nothing is left half."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
from pathlib import Path
from time import process_time

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.governor import born
from polymodel.sparse.files import text
from polymodel.sparse.files.readers import MOST_RANKS
from polymodel.spec.energy import confined
from polymodel.spec.files import JOURNAL, clear_unfinished, record, unfinished, write_text
from tests.faults import faults
from tests.fuzz.lines import SPEC

POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and devices as files")
HEAD = b"%%MatrixMarket matrix coordinate real general\n"


@POSIX
@pytest.mark.parametrize("ending", [".yaml", ".mtx", ".tns"])
def test_pipes_devices_and_folders(tmp_path: Path, ending: str) -> None:
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / f"round{ending}").symlink_to(f"round{ending}")
    read = pm.load if ending == ".yaml" else pm.read_tensor
    for name in ("pipe", "zero", "folder", "round", "n" * 300, "p\0"):
        with pytest.raises(pm.SpecError) as caught:
            read(tmp_path / f"{name}{ending}")
        assert caught.value.diagnostics[0].remedy


@POSIX
def test_what_a_spec_names_stays_in_its_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.csv").write_text("x", encoding="utf-8")
    (inside / "link.csv").symlink_to(tmp_path / "out.csv")
    (inside / "up").symlink_to(tmp_path)
    (inside / "round.csv").symlink_to("round.csv")
    os.mkfifo(inside / "pipe.csv")
    for name in ("link.csv", "up/out.csv", "../out.csv", str(tmp_path / "out.csv"), "/dev/zero", "a\0"):
        with faults("unreadable-file", at=""):
            confined(name, str(inside))
    for name in ("round.csv", "pipe.csv", "n" * 5000, "."):
        with faults("unreadable-file", at=""):
            confined(name, str(inside))
    (inside / "fine.csv").write_text("x", encoding="utf-8")
    assert confined("fine.csv", str(inside)) == inside / "fine.csv"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(HEAD + b"9 9 1\n1 1 1\n")[:-9], "cut off"),
        (gzip.compress(HEAD + b"9 9 1\n1 1 1\n") + b"garbage", "damaged"),
        (gzip.compress(HEAD + (b"%" * 999 + b"\n") * 100_000), "no list of numbers"),
        (gzip.compress(HEAD + b"9" * 12_000_000), "more than 1,048,576 characters"),
        (gzip.compress(HEAD + f"9 9 {10**18}\n1 1 1\n".encode()), "too few"),
        (gzip.compress(HEAD + b"9 9 1\n1 nan 1\n"), "not a whole number"),
        (gzip.compress(HEAD + b"9 9 1\n1 1 nan\n"), "not finite"),
        (gzip.compress(HEAD + b"9 9 1\n99999999999999999999 1 1\n"), "outside"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",  # packed bytes hold the time
)
def test_packed_files_that_are_none(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "a.mtx.gz").write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(pm.SpecError, match=why):
        pm.read_tensor(tmp_path / "a.mtx.gz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_several_members_are_one_text(tmp_path: Path) -> None:
    members = (HEAD + b"9 9 2\n1 1 ", b"1\n2 2 2\n")
    (tmp_path / "a.mtx.gz").write_bytes(b"".join(gzip.compress(m) for m in members))
    assert pm.read_tensor(tmp_path / "a.mtx.gz").nnz == 2


def test_ranks_of_a_tensor(tmp_path: Path) -> None:
    for ranks in (MOST_RANKS, MOST_RANKS + 1):
        (tmp_path / "a.tns").write_text("1 " * ranks + "2.5\n", encoding="utf-8")
        if ranks == MOST_RANKS:
            assert len(pm.read_tensor(tmp_path / "a.tns").ranks) == ranks
            continue
        with pytest.raises(pm.SpecError, match=f"at most {MOST_RANKS} ranks"):
            pm.read_tensor(tmp_path / "a.tns")


@pytest.mark.parametrize("line", ["# word\n", "\n"])
@pytest.mark.parametrize(
    ("ending", "above", "entries"),
    [
        (".tns", "", "1 1 2.5\n"),
        (".tns", "1 1 2.5\n", ""),
        (".mtx", HEAD.decode(), "9 9 1\n1 1 2.5\n"),
        (".mtx", f"{HEAD.decode()}9 9 1\n", "1 1 2.5\n"),
        (".mtx", f"{HEAD.decode()}9 9 1\n1 1 2.5\n", ""),
    ],
)
def test_comments_without_end(
    tmp_path: Path, line: str, ending: str, above: str, entries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MOST_IDLE", 5000)
    file = tmp_path / f"a{ending}"
    line = line if ending == ".tns" else line.replace("#", "%")
    for lines in (4990, 6000):
        file.write_text(above + line * lines + entries, encoding="utf-8")
        if lines < 5000:
            assert pm.read_tensor(file).nnz == 1
            continue
        with faults("too-large", "5,000", at=""):
            pm.read_tensor(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [2_000_000, pytest.param(50_000_000, marks=pytest.mark.slow)],
    ids=("two million", "fifty million"),
)
def test_millions_of_lines_of_comments(lines: int, tmp_path: Path) -> None:
    """A million of them are read, in a second or two, however many follow."""
    with (tmp_path / "a.mtx").open("wb") as file:
        file.write(HEAD)
        for _ in range(lines // 1_000_000):
            file.write(b"%\n" * 1_000_000)
        file.write(b"9 9 1\n1 1 2.5\n")
    begun = process_time()
    with faults("too-large", "1,000,000", at=""):
        pm.read_tensor(tmp_path / "a.mtx")
    assert process_time() - begun < 5


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")
    file.chmod(0o640)
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "half" * 10_000 + "\ud800")
    assert file.read_text(encoding="utf-8") == "old"
    link = tmp_path / "link.txt"
    link.symlink_to(file)
    write_text(link, "new")
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link.txt"]
    mine, others = tmp_path / ".x.new.csv", tmp_path / ".y.new.csv"
    for left in (mine, others):
        left.touch()
    record(mine)
    clear_unfinished(tmp_path)
    assert list(tmp_path.glob("*.new*")) == [others]
    assert not (tmp_path / JOURNAL).exists()


def test_only_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Those of a process that is no more, of this host; no link, no folder, nothing of another name."""
    here = unfinished(tmp_path / "a.txt").name.split("-")[1]
    ended = subprocess.Popen(["true"])
    ended.wait()
    me, since = os.getpid(), born(os.getpid())
    ours, dead = f"polymodel-{here}", ended.pid
    left = f".a.{ours}-{dead}-1-01234567.new.txt"
    reused = f".a.{ours}-{me}-{int(since) - 1}-01234567.new.txt"  # of an earlier process of our number
    others = (
        f".a.{ours}-{me}-{since}-01234567.new.txt", f".a.polymodel-00000000-{dead}-1-01234567.new",
        f".a.{ours}-{dead}-1-01234567.new.txt.bak", f"a.{ours}-{dead}-1-01234567.new",
        ".a.01234567.new.txt", ".notes.new", f".a.{ours}-0-1-01234567.new",
    )  # fmt: skip
    for name in (left, reused, *others):
        (tmp_path / name).write_text("mine", encoding="utf-8")
    link = tmp_path / f".b.{ours}-{dead}-1-01234567.new"
    link.symlink_to(tmp_path / ".notes.new")
    write_text(tmp_path / "b.txt", "new")
    assert {f.name for f in tmp_path.iterdir()} == {*others, link.name, "b.txt"}


def test_a_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "file").touch()
    line = ["evaluate", str(tmp_path / "s.yaml"), "--set", "TM=4", "--out", str(tmp_path / "file")]
    assert main(line) == 2
    assert "cannot write" in capsys.readouterr().err
