"""Without extras polymodel evaluates, sweeps and searches, and names the extra of what is missing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import polymodel as pm
from benchmarks.small import CORE
from polymodel.libraries import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

WITHOUT = """
import sys
sys.path[:] = sys.argv[1:] + [p for p in sys.path if "site-packages" not in p]
import polymodel as pm
spec = pm.load("simple_two_level", "matmul/output_stationary")
report = pm.evaluate(spec)
assert "DRAM" in str(report) and len(report.energy)
page = report.to_html()
assert "plots are left out" in page and "polymodel[plots]" in page
from polymodel.cli import main
assert main(["validate", "matmul", "simple_two_level", "--memory", "1GB"]) == 0
assert main(["evaluate", "simple_two_level", "matmul/output_stationary", "--html", "page.html"]) == 0
small = ["--var", "M=4", "--var", "N=4", "--var", "K=4", "--objective", "energy"]
assert main(["explore", "matmul", "simple_two_level", *small, "--html", "front.html"]) == 0
LATE = [
    ["timeline", "simple_two_level", "matmul/output_stationary", "--component", "GLB", "--out", "late"],
    ["evaluate", "simple_two_level", "matmul/output_stationary", "--out", "late", "--parquet"],
    ["explore", "matmul", "simple_two_level", *small, "--store", "late"],
    ["tile", "absent.mtx", "--plot", "late.png"],
    ["tile", "absent.mtx", "--out", "late"],
    ["sparse", "absent.mtx", "--out", "late"],
]
from pathlib import Path
from unittest.mock import patch
with patch("polymodel.cli.specs.load_spec", side_effect=AssertionError("work began")):
    for words in LATE:
        assert main(words) == 2, words
assert not Path("late").exists()
front = pm.explore(pm.load("matmul", "simple_two_level", M=4, N=4, K=4), objectives="energy")
assert not any(f.suffix == ".parquet" for f in front.save("saved"))
asked = {
    "matplotlib": report.plot,
    "pyarrow": lambda: report.to_parquet("tables"),
    "scipy": lambda: pm.fit_density(pm.random_tensor(["I", "J"], [40, 40], 0.1, seed=1), tiles=(8,)),
    "sympy": lambda: pm.closed_forms(pm.load("simple_two_level", "matmul/output_stationary")).accesses,
    "networkx": lambda: spec.workload.graph,
    "jax": lambda: pm.sweep(spec, {"TM": [1]}, device="gpu"),
}
for name, ask in asked.items():
    try:
        ask()
    except ImportError as error:
        print(name, "|", str(error).replace(chr(10), " "))
    else:
        print(name, "| answered")
try:
    import scipy
except ModuleNotFoundError as error:
    print("user |", type(error).__name__)
"""


def name_of(requirement: str) -> str:
    """The package that a requirement names."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def core() -> Iterator[Distribution]:
    """What an installation without extras brings."""
    waiting = [name_of(text) for text in PROJECT["dependencies"]]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        waiting += [name_of(text) for text in found.requires or () if ";" not in text]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that has the modules of the core and no others."""
    made = tmp_path / "site"
    made.mkdir()
    for found in core():
        for file in found.files or ():
            top = Path(file.parts[0])
            if ".." not in file.parts and not (made / top).exists():
                (made / top).symlink_to(Path(str(found.locate_file(top))))
    return made


def test_the_core_works_and_tells_what_is_missing(site: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT, str(site), str(ROOT)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told_plots = 'note: plots are left out: pip install "polymodel[plots]" brings them'
    assert done.stderr.splitlines().count(told_plots) == 2  # one of each page
    late = [line for line in done.stderr.splitlines() if "is not installed; it is for" in line]
    assert [line.split()[0] for line in late] == ["matplotlib", *["pyarrow"] * 2, *["matplotlib"] * 3]
    told = dict(line.split(" | ", 1) for line in done.stdout.splitlines() if " | " in line)
    assert told.pop("user") == "ModuleNotFoundError"
    assert told.keys() == EXTRAS.keys()
    for library, message in told.items():
        assert f"{library} is not installed" in message
        assert f'pip install "polymodel[{EXTRAS[library][0]}]"' in message


def test_each_library_is_in_its_extra_and_all_have_them() -> None:
    optional = PROJECT["optional-dependencies"]
    extras = {name: [name_of(text) for text in texts] for name, texts in optional.items()}
    needed = {name_of(text) for text in PROJECT["dependencies"]}
    (everything,) = optional["all"]
    assert needed == set(CORE)
    for library, (extra, _) in EXTRAS.items():
        assert library in extras[extra]
        assert library not in needed
        assert extra in everything or library == "jax"  # of use with a device alone


def test_public_names_are_those_of_the_stub() -> None:
    tree = ast.parse(Path(pm.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    named = {a.asname for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert named == set(pm.__all__) == set(dir(pm))
    assert len(named) > 100
    assert {name for name in pm.__all__ if getattr(pm, name) is None} == set()
    with pytest.raises(AttributeError, match="has no attribute 'evalute'") as caught:
        getattr(pm, "eval" + "ute")
    assert caught.value.name == "evalute"
