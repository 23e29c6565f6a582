"""The report as a page: what is in it, what it was made from, and that it stands on its own."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree

import pytest

import polymodel as pm
from polymodel.report.provenance import spec_text
from polymodel.report.report import TABLES, Report
from polymodel.report.report_page import component_tips, node_tips
from polymodel.spec.yaml_text import files_as_read
from polymodel.view.answer import Line, Part
from polymodel.view.html import page
from polymodel.view.inline import _shorter, inline
from tests.seeds import seeds

ROOT = Path(__file__).resolve().parents[2]
SPECS = [
    ("gpt3_6.7B", "tpu_v4i", "fused"),
    ("vgg_e_front", "fused_layer_fpga", "recomputed_fused"),
    ("conv2d", "eyeriss_like", "row_stationary"),
    ("matmul_chain_2", "two_engines", "pipeline"),
    ("gram", "cgra_tiler_swift", "output_stationary"),
]

OWN = """
workload:
  rank_sizes: {I: 340, K: 35, J: NJ}
  bits_per_value: {All: 8}
  einsums: ["Z[i, j] = A[i, k] * B[k, j]"]
  densities: {A: {actual: matrix.mtx.gz}}
symbols: {NJ: 16}
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: All}
    energy_model: {name: table, file: energies.csv, component: dram}
    actions: [{name: read}, {name: write}]
  - !Memory
    name: GLB
    size: 1e6
    tensors: {may_keep: All}
    actions: [{name: read, energy: 1e-12}, {name: write, energy: 1e-12}]
  - !Compute {name: MAC, actions: [{name: compute, energy: 1e-12, throughput: 1e9}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: i, tile_shape: TI}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Compute {einsum: Z, component: MAC}
"""


class Checked(HTMLParser):
    """Tags in balance, each id once, no handler in any attribute; text and links as they are found."""

    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [tag] if tag not in self.VOID else []
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name in ("href", "src", "xlink:href") else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> Checked:
    found = Checked()
    found.feed(text)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    return found


@pytest.fixture(scope="module")
def gpt3() -> Report:
    return pm.evaluate(pm.load("gpt3_6.7B", "tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048))


@pytest.mark.slow
def test_the_page_of_the_gpt3_layer(gpt3: Report, tmp_path: Path) -> None:
    text = gpt3.to_html(tmp_path / "report.html", live=False, command="polymodel evaluate x --var 'A=<b>'")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    found = checked(text)
    assert len(text.encode()) < 1_500_000
    assert text.count("<svg") == 3 + 3 + 4, "pictures, plots, and four memories over time"
    for name in TABLES:
        if name not in ("fusion", "pipelines"):
            assert f"table-{name.replace('_', '-')}" in found.ids
    assert "polymodel evaluate x --var &#39;A=&lt;b&gt;&#39;" in text
    assert "exact integer" in text
    assert f'<tr><th scope="row">polymodel</th><td>{pm.__version__}</td></tr>' in text
    assert '<tr><th scope="row">N_TOKENS</th><td>2048</td></tr>' in text
    for file in ("arch/tpu_v4i.yaml", "workloads/gpt3_6.7B.yaml"):
        assert hashlib.sha256((ROOT / file).read_bytes()).hexdigest() in text


def test_only_its_own_script_may_run(gpt3: Report) -> None:
    text = gpt3.to_html(live=False, plots=False)
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)[0]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    known = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{known}'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|XMLHttp", script)


@pytest.mark.parametrize(("workload", "arch", "mapping"), seeds(2, SPECS))
@pytest.mark.thin(2)
def test_the_spec_in_a_page_gives_the_same_report(
    workload: str, arch: str, mapping: str, tmp_path: Path
) -> None:
    variables = {"N_TOKENS": 512} if workload == "gpt3_6.7B" else {}
    spec = pm.load(workload, arch, f"{workload}/{mapping}", variables=variables)
    report = pm.evaluate(spec)
    text = report.to_html(live=False, plots=False)
    written = unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)[-1])
    assert written == spec_text(spec)
    assert hashlib.sha256(written.encode()).hexdigest() in text
    copytree(ROOT / "workloads" / "data", tmp_path / "data")  # data files stand beside a spec
    (tmp_path / "again.yaml").write_text(written, encoding="utf-8")
    again = pm.evaluate(pm.load(tmp_path / "again.yaml"))
    for name in ("tiles", "accesses", "energy", "latency", "working_sets"):
        assert again.table(name, live=False).rows == report.table(name, live=False).rows


def test_symbols_with_their_values_are_in_the_spec(tmp_path: Path) -> None:
    mapping = (ROOT / "workloads/matmul/simple_two_level/output_stationary.yaml").read_text(encoding="utf-8")
    assert "tile_shape" in mapping
    symbolic = tmp_path / "mapping.yaml"
    symbolic.write_text(re.sub(r"tile_shape: \d+", "tile_shape: TM", mapping, count=1), encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", symbolic).bind(TM=7)
    text = spec_text(pm.evaluate(spec).spec or spec)
    assert "TM: 7" in text
    assert f"{symbolic}" in files_as_read(spec.locator)
    tree = spec.mapping
    assert tree is not None
    text = spec_text(spec.with_mapping(tree))
    (tmp_path / "again.yaml").write_text(text, encoding="utf-8")
    assert pm.load(tmp_path / "again.yaml").mapping == tree


def test_a_report_of_objects_says_so(fused: Report) -> None:
    text = fused.to_html(plots=False)
    assert "evaluated from objects" in text
    assert "!Storage {component: DRAM" in text
    assert "every iteration is enumerated" in text


def test_the_date_can_be_given(fused: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert "1970-01-01 00:00:00 UTC" in fused.to_html(plots=False)
    assert fused.to_html(plots=False) == fused.to_html(plots=False)


def test_boxes_tell_the_numbers_of_the_tables(gpt3: Report) -> None:
    tips = node_tips(gpt3)
    tree = gpt3.problem.tree
    assert set(tips) >= {here for here, node, _ in tree.walk() if type(node).__name__ != "Split"}
    assert tips[0].startswith("I_in: tile 67.11 Mb, 1 visits; reads 67.11 Mb, writes 0 b")
    machine = component_tips(gpt3)
    assert "% of all energy" in machine["MAC"]
    assert "holds at most" in machine["GLB"]
    assert "limits V, K, Q" in machine["MAC"]
    assert tips[0].splitlines()[0] in gpt3.to_html(live=False, plots=False)


def test_what_cannot_be_drawn_is_told() -> None:
    text = pm.evaluate(pm.load("matmul_chain_2", "two_engines", "matmul_chain_2/pipeline")).to_html(
        live=False
    )
    checked(text)
    assert "left out: " in text


def test_pictures_share_a_page_and_lose_nothing() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    ax = figure.subplots()
    ax.plot(range(40), [0] * 20 + [5] * 20)
    svg = inline(figure, "Plot: a < b", "q7")
    assert "<title>a &lt; b</title>" in svg
    assert set(re.findall(r'id="(\w+)-', svg)) == {"q7"}
    assert "<style" not in svg
    assert "<metadata" not in svg
    checked(svg)
    path = "M 0 0 \n" + "".join(f"L {x}.04 0 \n" for x in range(1, 20)) + "L 19.04 7.5 \nL 20 9 \nz\n"
    assert _shorter(path) == "M0 0h19v7.5l1 1.5z"


def test_parts_fold_below_a_table_of_contents() -> None:
    parts = [Part("One & two", [Line("1")], opened=True), Part("Three", [Line("3")])]
    text = page("a & b", [Line("x")], parts)
    found = checked(text)
    assert found.links == ["#one-two", "#three"]
    assert '<details class="part" id="one-two" open>' in text
    assert "<title>a &amp; b</title>" in text
    assert "<nav" not in page("a", [Line("b")])


def test_data_files_are_named_with_their_digests(tmp_path: Path) -> None:
    """A matrix and a table of energies beside the spec: elsewhere, with both, it gives the same figures."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "matrix.mtx.gz").write_bytes((ROOT / "workloads/data/relations.mtx.gz").read_bytes())
    (own / "energies.csv").write_text(
        "component,quantity,value\ndram,read,7e-12\ndram,write,7e-12\n", "utf-8"
    )
    (own / "spec.yaml").write_text(OWN, encoding="utf-8")
    report = pm.evaluate(pm.load(own / "spec.yaml").bind(NJ=8, TI=10))
    text = report.to_html(live=False, plots=False)
    there = tmp_path / "there"
    there.mkdir()
    for name in ("matrix.mtx.gz", "energies.csv"):
        assert hashlib.sha256((own / name).read_bytes()).hexdigest() in text
        assert f'<th scope="row">{name}</th>' in text
        (there / name).write_bytes((own / name).read_bytes())
    written = unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)[-1])
    (there / "again.yaml").write_text(written, encoding="utf-8")
    again = pm.evaluate(pm.load(there / "again.yaml"))
    for name in TABLES:
        assert again.table(name, live=False).rows == report.table(name, live=False).rows, name
    assert again.sparse.total_energy == report.sparse.total_energy
    (own / "matrix.mtx.gz").unlink()
    assert "the file no longer exists" in report.to_html(live=False, plots=False)
