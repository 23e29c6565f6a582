"""What every object that a call returns is shown as: text in a terminal, HTML or a picture in a notebook."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.report.report import TABLES
from polymodel.report.starter import STARTER
from polymodel.view.answer import Section
from polymodel.view.html import fragment
from polymodel.view.table import Column, Table

# What only Python says: an address, the fields of a record, an array.
RAW = re.compile(r" object at 0x|Column\(name=|array\(|Form\(|renderer=|Decimal\(|frozenset\(\{")
LONGEST = 6_000  # characters of repr()


def objects(folder: Path) -> dict[str, object]:
    """Everything that is reached from the functions of the package, by what it is."""
    file = folder / "spec.yaml"
    file.write_text(STARTER, encoding="utf-8")
    spec = pm.load(file)
    report, forms = pm.evaluate(spec), pm.closed_forms(spec)
    one = pm.load("simple_two_level", "matmul/output_stationary", M=32, N=32, K=32)
    a = pm.random_tensor("IJ", (64, 64), 0.1, 1)
    swept = pm.sweep(spec, {"TM": [1, 2]}, keep="all")
    front, slope = pm.explore(one), pm.ski_slope(one)
    chain, graph = pm.chain_slope(spec), pm.graph_slope(spec)
    curve = graph["tiled_fused"]
    return {
        "Spec": spec,
        "LoopTree": spec.mapping,
        "workload": spec.workload,
        "arch": spec.arch,
        "Report": report,
        "table": report.table("tiles"),
        "analysis": report.analysis,
        "costs": report.costs,
        "counts": report.counts,
        "engine": report.engine,
        "peak": report.peak("GLB"),
        "explain": report.explain("T1", "GLB", "T0"),
        "SymbolicReport": forms,
        "SymbolicTable": forms.table("accesses"),
        "Comparison": pm.compare(report, report),
        "SparseReport": report.sparse,
        "sparse table": report.sparse.table("summary"),
        "TilingReport": report.tiling,
        "Sweep": swept,
        "row": swept.best(),
        "grid": swept.grid,
        "Front": front,
        "point": front[0],
        "front table": front.table(),
        "SkiSlope": slope,
        "ski points": slope.points,
        "ski point": slope.points[0],
        "ChainSlope": chain,
        "chain curves": chain.curves,
        "chain points": chain.curves["unfused"],
        "chain point": chain.curves["unfused"][0],
        "GraphSlope": graph,
        "graph curves": graph.curves,
        "graph curve": curve,
        "graph point": curve.points[0],
        **(_tiled(a) | _rest(spec, one, a)),
    }


def _tiled(a: pm.SparseTensor) -> dict[str, object]:
    tiled = pm.tile(a)
    return {
        "Tiling": tiled,
        "rival": tiled.own,
        "cut": tiled.cut,
        "pattern": tiled.pattern,
        "fit": tiled.fit,
        "launch": tiled.launch,
        "MatmulTiling": pm.tile_matmul(a, a, capacity=256),
        "ChainTiling": pm.tile_chain(a, a, a, capacity=None),
        "TileSimulation": tiled.simulate(most=2),
        "TilingEstimates": pm.estimate_tiling(a),
        "Tuning": pm.tune_tiling(a),
        "TilerSwift": pm.tiler_swift_comparison([a]),
    }


def _rest(spec: pm.Spec, one: pm.Spec, a: pm.SparseTensor) -> dict[str, object]:
    space = pm.mapspace(one)
    ran = pm.execute(pm.load("tensaurus/spmm"), {"A": a, "B": np.ones((64, 8))})
    return {
        "Mapspace": space,
        "EinsumMapspace": space.einsums[0],
        "Predictions": pm.predict(a),
        "DensityFit": pm.fit_density(a, tiles=(8,)),
        "Tensaurus": pm.tensaurus("SpMM", a),
        "footprint": pm.footprint(a, "CSR"),
        "tensor": a,
        "Uniform": pm.Uniform.of("IJ", (4, 4), nnz=3),
        "Actual": pm.Actual.of(a),
        "RankNnz": pm.RankNnz.from_tensor(a),
        "execution": ran,
        "ExecutionReport": pm.ExecutionReport(ran),
        "looptree picture": pm.draw_looptree(spec),
        "fibertree": pm.draw_fibertree(a),
        "Limits": pm.Limits(),
        "Imported": pm.Imported("a.yaml", "workload: {}\n"),
        "divisors": pm.divisors("m"),
    }


# These are one line, and a notebook shows that line.
BRIEF = {
    "Spec",
    "analysis",
    "costs",
    "counts",
    "engine",
    "grid",
    "rival",
    "cut",
    "pattern",
    "fit",
    "launch",
    "footprint",
    "tensor",
    "Uniform",
    "Actual",
    "RankNnz",
    "Limits",
    "divisors",
    "EinsumMapspace",
}
# These are text, and a notebook shows the text.
TEXT = {
    "ski points", "ski point", "chain curves", "chain points", "chain point", "graph curves", "graph curve",
    "graph point",
}  # fmt: skip
# What a call answers with: str() of it is a report of several lines.
REPORTS = {
    "Spec",
    "Report",
    "table",
    "SymbolicReport",
    "SymbolicTable",
    "Comparison",
    "SparseReport",
    "Front",
    "SkiSlope",
    "ChainSlope",
    "GraphSlope",
    "Mapspace",
    "Tiling",
    "MatmulTiling",
    "ChainTiling",
    "TileSimulation",
    "TilingEstimates",
    "Tuning",
    "TilerSwift",
    "Predictions",
    "DensityFit",
    "Tensaurus",
    "ExecutionReport",
    "explain",
    "peak",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return objects(tmp_path_factory.mktemp("reprs"))


def test_a_terminal_shows_a_report(found: dict[str, object]) -> None:
    for name, shown in found.items():
        brief, whole = repr(shown), str(shown)
        assert brief.strip(), name
        assert whole.strip(), name
        assert len(brief) < LONGEST, name
        for text in (brief, whole):
            assert not RAW.search(text), (name, text[:300])
        if name in BRIEF:
            assert "\n" not in brief, name
        if name in REPORTS:
            assert whole.count("\n") >= 2, (name, whole)


def test_a_notebook_shows_html_or_a_picture(found: dict[str, object]) -> None:
    bare = {
        name for name, shown in found.items()
        if not any(hasattr(shown, f"_repr_{kind}_") for kind in ("html", "svg", "latex"))
    }  # fmt: skip
    assert bare == BRIEF | TEXT
    for name, shown in found.items():
        html: Callable[[], str] | None = getattr(shown, "_repr_html_", None)
        if html is not None:
            page = html()
            assert "<" in page, name
            assert "$" not in page, name  # nothing that waits to be set
            assert not RAW.search(page), name


def test_closed_forms_read_without_being_set() -> None:
    spec = pm.load("simple_two_level", "matmul/output_stationary", M=100, N=64, K=48)
    table = pm.closed_forms(spec, tiles=True).table("accesses")
    text, html = repr(table), table._repr_html_()
    assert text.startswith("einsum")
    assert "·⌈" in text
    assert "**" not in text
    assert "⌈" in html
    assert "\\" not in html


def test_formulas() -> None:
    import sympy

    from polymodel.report import formula

    m, t = sympy.symbols("M TM", integer=True, positive=True)
    piece = sympy.Piecewise((m, t <= 3), (sympy.Mod(m, t), True))
    cases = {
        16 * sympy.ceiling(m / t): ("16·⌈M/TM⌉", "16·⌈M/TM⌉"),
        m**2 * sympy.floor(m / t) ** 3: ("M^2·⌊M/TM⌋^3", "M<sup>2</sup>·⌊M/TM⌋<sup>3</sup>"),
        sympy.Max(m, 8 * t): ("max(M, 8·TM)", "max(M, 8·TM)"),
        sympy.Min(m, t): ("min(M, TM)", "min(M, TM)"),
        piece: ("(M if TM ≤ 3, else (M mod TM))", "(M if TM ≤ 3, else (M mod TM))"),
        sympy.Float(1.5e-6) * m: ("1.5e-6·M", "1.5e-6·M"),
    }
    shown = Column("form", formula=True)
    for given, (text, html) in cases.items():
        assert formula.text(given) == text
        assert f"{html}</span>" in fragment([Section("", Table("t", (shown,), ((text,),)))])
    assert [formula.text(v) for v in (None, 3, 2.5e-7, "GLB")] == ["-", "3", "2.5e-07", "GLB"]


def test_everything_is_pickled_and_copied(found: dict[str, object]) -> None:
    for name, kept in found.items():
        for again in (pickle.loads(pickle.dumps(kept)), copy.copy(kept), copy.deepcopy(kept)):
            if name == "row":  # a copy is an ordinary Series
                assert (again == kept).all()
                continue
            assert type(again) is type(kept), name
            assert repr(again) == repr(kept), name


@pytest.mark.slow
def test_another_process_reads_a_report(found: dict[str, object], tmp_path: Path) -> None:
    """Pickled after its closed forms have been looked at, which hold SymPy's objects."""
    report = found["Report"]
    assert isinstance(report, pm.Report)
    assert report.symbolic.table("energy").cell(0, "count") is not None
    file = tmp_path / "found.pickle"
    file.write_bytes(pickle.dumps((report, found["Sweep"], found["Front"], found["Tiling"])))
    code = (
        "import pickle, sys\n"
        "report, sweep, front, tiling = pickle.load(open(sys.argv[1], 'rb'))\n"
        "cell = report.symbolic.table('energy').cell(0, 'count')\n"
        "print(report.total_energy, len(sweep.frame), front[0].energy, tiling.costs.total_cycles, cell)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    sweep, front, tiled = found["Sweep"], found["Front"], found["Tiling"]
    assert isinstance(sweep, pm.Sweep)
    assert isinstance(front, pm.Front)
    assert isinstance(tiled, pm.Tiling)
    cell = report.symbolic.table("energy").cell(0, "count")
    wanted = f"{report.total_energy} {len(sweep.frame)} {front[0].energy} {tiled.costs.total_cycles} {cell}"
    assert ran.stdout.strip() == wanted


def test_equal_means_the_same_and_hashes(found: dict[str, object]) -> None:
    """Answers are equal to themselves alone, so that they may be keys; parts of a spec by what they say."""
    spec = found["Spec"]
    assert isinstance(spec, pm.Spec)
    again = pm.evaluate(spec)
    for name in ("Report", "Sweep", "Front", "Tiling", "SkiSlope", "ChainSlope", "GraphSlope", "tensor"):
        assert len({found[name], found[name]}) == 1, name
    assert again != found["Report"]
    assert pm.sweep(spec, {"TM": [1, 2]}, keep="all") != found["Sweep"]
    assert spec.mapping == pm.evaluate(spec).problem.tree
    assert hash(spec.mapping) == hash(again.problem.tree)


def test_completion_lists_the_tables(found: dict[str, object]) -> None:
    assert set(TABLES) <= set(dir(found["Report"]))
    assert {"summary", "tiles", "accesses", "energy", "at", "table"} <= set(dir(found["SymbolicReport"]))
    assert {"frame", "front", "best", "plot", "spec", "mapping_yaml"} <= set(dir(found["Sweep"]))
    for name in pm.__all__:
        doc = getattr(pm, name).__doc__
        assert doc, name
        assert not doc.startswith(f"{name}("), name  # what a dataclass makes up
