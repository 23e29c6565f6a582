"""The wheel and the sdist: built, installed into clean environments of each Python, and used from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.pairs import each
from tests.seeds import seeds

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
# What a user does first, far from any checkout.
TRIAL = """
import sys, polymodel as pm
assert "site-packages" in pm.__file__, pm.__file__
report = pm.evaluate(pm.load("matmul_chain_2", "simple_two_level", "matmul_chain_2/tiled_fused"))
assert report.feasible, report
found = pm.explore(pm.load("matmul", "simple_two_level"), objectives="energy")
assert len(found) == 1
if "scipy" not in sys.argv:
    sys.exit()
tiling = pm.tile(pm.random_tensor(["I", "J"], [60, 50], 0.1, seed=1), fit=pm.elements(32))
assert "tiles" in str(tiling)
print(sys.version_info[:2], report.total_energy > 0)
"""


def run(*words: str | Path, cwd: Path, **settings: str) -> str:
    """What a command prints; its errors are the failure's message."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        env={**kept, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def candidates(version: str) -> Iterator[str]:
    """Where a Python of this version may be: this one, on the path, or among a version manager's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(kept.glob(f"{version}.*/bin/python")))


def interpreter(version: str) -> str:
    """A Python that runs; a launcher may be there without one behind it."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in candidates(version):
        told = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip() == version:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist); the wheel is made from the sdist, so whatever it needs is in there."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def modelines(wheel: Path) -> Iterator[tuple[str, Path]]:
    """(schema, file) of each YAML file of the libraries, as an editor reads them."""
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if "_library" in name and name.endswith(".yaml"):
                first = packed.read(name).decode().splitlines()[0]
                assert first.startswith("# yaml-language-server: $schema="), name
                yield first.partition("=")[2], Path(name)


@pytest.mark.slow
def test_what_is_in_the_packages(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    names = zipfile.ZipFile(wheel).namelist()
    inside = {n.removeprefix("polymodel/") for n in names if n.startswith("polymodel/")}
    sources = {str(p.relative_to(ROOT / "polymodel")) for p in (ROOT / "polymodel").rglob("*.py")}
    assert sources <= inside
    assert "py.typed" in inside
    for folder in ("arch", "workloads"):
        files = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*") if p.is_file()}
        assert {f"_library/{f}" for f in files} <= inside
    for line, at in modelines(wheel):
        assert Path(os.path.normpath(at.parent / line)).as_posix() in names, at
    licences = {p.name for p in (ROOT / "LICENSES").iterdir()}
    assert licences <= {Path(n).name for n in names if "/licenses/" in n}
    assert not [n for n in names if n.startswith(("tests", "docs"))]
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    packed = {n.partition("/")[2] for n in names}
    wanted = {
        "Makefile",
        "requirements.lock",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "tests/conftest.py",
    }
    assert wanted <= packed
    assert not [n for n in packed if n.startswith((".venv", "out/", "build/"))]


def clean(version: str, wheel: str | Path, folder: Path) -> tuple[Path, tuple[str | Path, ...]]:
    """A new environment with the wheel, and how more is installed there."""
    base, home = interpreter(version), folder / "env"
    uv = Path(sys.executable).parent / "uv"
    run(uv, "venv", "--quiet", "--no-project", "--python", base, home, cwd=folder)
    lock = ROOT / "requirements.lock"
    install = (uv, "pip", "install", "--quiet", "--python", home / "bin" / "python", "--constraint", lock)
    try:
        run(*install, wheel, cwd=folder)
    except AssertionError as failed:
        if "CI" in os.environ or not re.search("dns error|connect|offline", str(failed)):
            raise
        pytest.skip("no package index can be reached from here")
    return home, install


@pytest.mark.slow
def test_every_pair_that_pages_name_runs_from_the_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    home, _ = clean(version, f"{built[0]}[all]", tmp_path)
    every = list(each(home / "bin" / "polymodel"))
    assert len(every) > 110
    assert not [(words, fault) for words, _, _, fault in every if fault]


@pytest.mark.slow
@pytest.mark.parametrize("version", seeds(1, PYTHONS))
def test_a_clean_environment(version: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = built[0]
    home, install = clean(version, wheel, tmp_path)
    python = home / "bin" / "python"
    files = (f for f in home.rglob("*") if f.is_file() and not f.is_symlink())
    assert sum(f.stat().st_size for f in files) < 250e6
    run(python, "-c", TRIAL, cwd=tmp_path, HOME=str(tmp_path))
    run(*install, f"{wheel}[all]", cwd=tmp_path)
    told = run(python, "-c", TRIAL, "scipy", cwd=tmp_path, HOME=str(tmp_path))
    assert told.split(") ")[1].strip() == "True"
    command = home / "bin" / "polymodel"
    assert "feasible" in run(
        command, "evaluate", "matmul", "simple_two_level", "matmul/output_stationary", cwd=tmp_path
    )
    assert run(command, "--version", cwd=tmp_path).strip() == f"polymodel {wheel.name.split('-')[1]}"


@pytest.mark.slow
def test_types_are_seen_by_those_who_use_the_package(tmp_path: Path) -> None:
    """mypy knows what the facade answers, and objects to what is wrong."""
    (tmp_path / "use.py").write_text(
        "import polymodel as pm\n"
        'report = pm.evaluate(pm.load("matmul"), engine="exact")\n'
        "reveal_type(report)\n"
        "pm.evaluate(3)\n",
        encoding="utf-8",
    )
    config = ("--config-file", os.devnull, "--cache-dir", str(tmp_path / "cache"))
    words = [sys.executable, "-m", "mypy", *config, "--follow-imports=silent", "use.py"]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "polymodel.report.report.Report" in told, told
    assert 'use.py:4: error: Argument 1 to "evaluate"' in told, told


def test_one_version_everywhere() -> None:
    import tomllib

    import polymodel

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.search(r"^version: (.*)$", citation, re.MULTILINE)
    assert cited is not None
    assert polymodel.__version__ == project["version"] == cited.group(1)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (\S+), (\S+)$", changes, re.MULTILINE)
    assert heads[0][0] == project["version"]
    dated = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)
    assert heads[0][1] == (dated.group(1) if dated else "unreleased")


def test_every_target_of_make_is_told() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    told = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    assert len(targets) > 10
    assert not [t for t in targets if not re.search(rf"\bmake {t}\b(?!-)", told)]
