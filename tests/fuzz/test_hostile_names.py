"""Names that steer terminals, turn text around, or are markup: masked or escaped by every writer.

Names of Einsums, tensors, ranks and components are identifiers (the last test). Free are names of workloads,
architectures and mappings, of files and folders, and of tensors that are read from files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyarrow import parquet

import polymodel as pm
from polymodel.cli import main
from polymodel.errors import masked
from tests.fuzz.lines import MATRIX, SPEC
from tests.fuzz.test_written import made
from tests.seeds import seeds

pytestmark = pytest.mark.skipif(os.name != "posix", reason="names of files")
EVIL = "<script>evil(1)<!--\x1b[31m\u202e&\"'$\\frac$]]>\u2066--><img src=x onerror=evil(1)>"
FILE = EVIL.replace("/", "")


def hostile(tmp_path: Path) -> Path:
    """A folder of that name, with a spec whose parts are called so, and a matrix."""
    here = made(tmp_path, FILE)
    named = SPEC.replace("workload: {", f"workload: {{name: {json.dumps(EVIL)}, ")
    for part in ("arch", "mapping"):
        named = named.replace(f"{part}:\n", f"{part}:\n  name: {json.dumps(EVIL)}\n")
    unmapped = named.partition("mapping:")[0].replace("symbols: {TM: null}\n", "")
    for name, text in ((f"{FILE}.yaml", named), (f"{FILE}-e.yaml", unmapped), (f"{FILE}.mtx", MATRIX)):
        (here / name).write_text(text, encoding="utf-8")
    return here


S, E, M = (shlex.quote(f"{FILE}{ending}") for ending in (".yaml", "-e.yaml", ".mtx"))
OUT = shlex.quote(f"{FILE}-out")
LINES = (
    f"validate {S}",
    f"show {S} --set TM=4 --out {OUT} --html {OUT}.html",
    f"evaluate {S} --set TM=4 --out {OUT} --parquet --html {OUT}.html",
    f"forms {S} --out {OUT} --html {OUT}.html",
    f"compare {S} {S} --set TM=4 --html {OUT}.html",
    f"timeline {S} --set TM=4 --component GLB --out {OUT} --html {OUT}.html",
    f"sweep {S} --symbol TM=2,4 --out {OUT} --store {OUT}-store --html {OUT}.html",
    f"explore {E} --objective energy --out {OUT} --html {OUT}.html",
    f"tile {M} --capacity 3 --out {OUT} --export {OUT}-tiles --plot {OUT}.svg",
    f"tile {M} --op matmul --capacity 64 --out {OUT}",
    f"tile {M} --tune --capacity 3 --out {OUT}",
    f"sparse {M} --tiles 2 --out {OUT}",
    f"execute teaal/gamma A={M} B={M} --out {OUT} --html {OUT}.html",
    f"traffic teaal/gamma_traffic A={M} B={M} --out {OUT} --html {OUT}.html",
    f"evaluate {S}",
    f"evaluate missing-{S}",
    f"tile missing-{M}",
    f"import timeloop {S}",
    f"import onnx {M}",
    f"execute {S} A={M}",
)


class Tags(HTMLParser):
    """Attributes of elements of a page that run scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}


def check_page(text: str) -> None:
    page = Tags()
    page.feed(text)
    assert not page.handlers
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert "<script>evil" not in text
    assert not any("evil(1)" in script for script in scripts)
    assert "<img src=x" not in text


def check_svg(text: str) -> None:
    tree = ElementTree.fromstring(text)
    names = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not names & {"script", "img"}


def check_file(file: Path) -> None:
    if file.suffix == ".parquet":
        parquet.read_table(file)
        return
    if file.suffix in (".png", ".json"):
        return
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".html":
        check_page(text)
    elif file.suffix == ".svg":
        check_svg(text)
    if file.suffix in (".html", ".svg", ".txt"):
        assert masked(text) == text, file.name


@pytest.mark.parametrize("line", seeds(len(LINES), LINES), ids=lambda line: line.split()[0])
@pytest.mark.thin(99)
def test_hostile_names(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = hostile(tmp_path)
    before = set(here.rglob("*"))
    monkeypatch.chdir(here)
    code = main(shlex.split(line))
    told = capsys.readouterr()
    assert code in (0, 1, 2, 3), ascii(told.err)
    assert "Traceback" not in told.err
    assert masked(told.out + told.err) == told.out + told.err
    for file in sorted(set(here.rglob("*")) - before):
        if file.is_file():
            check_file(file)


@pytest.mark.parametrize("place", ["E0", "A0", "M0", "DRAM"])
@pytest.mark.parametrize("name", ["a<b>", "a\x1b[31m", "a\u202eb", "a&b", "a b"])
def test_names_of_parts_are_identifiers(place: str, name: str, tmp_path: Path) -> None:
    """Of an Einsum, a tensor, a rank, a component: any other is refused, and told without its signs."""
    (tmp_path / "s.yaml").write_text(
        """
workload:
  rank_sizes: {"M0": 4}
  bits_per_value: {All: 8}
  einsums:
  - name: "E0"
    tensor_accesses: [{name: "A0", projection: {"M0": m}}, {name: Z, projection: {"M0": m}, output: true}]
arch:
  nodes:
  - !Memory {name: "DRAM", size: inf, tensors: {keep: All}}
  - !Compute {name: MAC}
""".replace(f'"{place}"', json.dumps(name)),
        encoding="utf-8",
    )
    with pytest.raises(pm.SpecError) as caught:
        pm.load(tmp_path / "s.yaml").check()
    assert masked(str(caught.value)) == str(caught.value)
