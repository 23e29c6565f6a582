"""Calls with wrong arguments: the place, a reason and a remedy, and never an error from deep inside.

tests/bad/python has whole answers of the most frequent ones; here are many, each with how its answer begins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.report.starter import STARTER

MATRIX = str(Path(__file__).parent / "data/matrices/circuit.mtx.gz")
# Where a fault's place stands in its message, it is the call or the file.
WRONG = """\
pm.load('spec.yaml', variables=3) | variables: 3 is not a table of values by name
pm.load('spec.yaml', variables=['N']) | variables: a list is not a table of values by name
pm.load('spec.yaml', symbols='TM=3') | symbols: 'TM=3' is not a table of values by name
pm.load('spec.yaml', symbols={3: 4}) | symbols: 3 is not a name
pm.load('spec.yaml', symbols={'TM': np.bool_(True)}) | symbols.TM: symbol TM = a bool
pm.load('spec.yaml', symbols={'TN': 3}) | symbols.TN: unknown symbol TN
pm.evaluate(spec, symbols=3) | symbols: 3 is not a table of values by name
pm.evaluate(spec, symbols=['TM']) | symbols: a list is not a table of values by name
pm.evaluate(spec, symbols={'TMM': 3}) | symbols.TMM: unknown symbol TMM
pm.evaluate(spec, engine=['exact']) | engine: there is no engine ['exact']
pm.evaluate(report) | evaluate: a Report is not a spec
pm.evaluate_problem(spec) | evaluate_problem: a Spec is not a problem
pm.closed_forms(spec, assume='evenly') | assume: there is no assumption 'evenly'
pm.closed_forms(spec).assuming(3) | assume: there is no assumption 3
pm.closed_forms(spec).table('tiles').at(3) | values: 3 is not a table of values by name
pm.closed_forms(spec).table('tiles').at({'TX': 3, 'TM': 'x'}) | values: there is no symbol 'TX'
pm.closed_forms(spec).table('tiles').at({}) | values: no value is given to TM
pm.closed_forms(spec).table('tiles').cell(99, 'einsum') | row: symbolic table tiles has no row 99
pm.closed_forms(spec).table('tiles').cell(0, 'einsums') | column: symbolic table tiles has no column
report.table(3) | table: there is no table 3
report.explain(1, 2, 3) | unknown Einsum 1
report.timeline('GLB', limit='x') | limit: a timeline of 'x' phases shows nothing
report.to_csv(3) | cannot write 3: it is not a name of a file
report.to_parquet(3) | cannot write 3: it is not a name of a file
report.plot('energy', ax=3) | plot: 3 is not an axes
pm.compile_cell(3, 4) | symbols: 4 is not a list
pm.mapping_to_yaml(spec) | mapping_to_yaml: a Spec is not a LoopTree
pm.LoopTree(3) | nodes: 3 is not a list of nodes
pm.LoopTree([3]) | nodes[0]: 3 is not a node of a LoopTree
pm.LoopTree([pm.Storage(component='GLB', tensors=['A'])]) | nodes[0]: a Storage is not a node of a LoopTree
pm.Problem(1, 2, 3) | cascade: Problem: 1 is not a Cascade
pm.Problem(spec.workload, spec.arch, None) | tree: Problem: None is not a LoopTree
pm.Spec('mlp.yaml') | raw_workload: Spec: 'mlp.yaml' is not a Workload
pm.Spec(raw_mapping=3) | raw_mapping: Spec: 3 is not a MappingSpec or LoopTree
pm.Report(spec, 2, 3, 4) | problem: Report: a Spec is not a Problem
pm.SparseReport(report, report, 3, {}) | counts: SparseReport: 3 is not a SparseCounts
pm.Imported('a.yaml', 3) | text: Imported: 3 is not a str
pm.SparseTensor('A', ['I'], (3,), [[0]], [1]) | ranks: SparseTensor: a list is not a tuple
pm.Rolled('5') | rows: Rolled: '5' is not a number of rows
pm.Tuning(3, 3, 3, 3) | a: Tuning: 3 is not a SparseTensor
pm.MatmulTiling(3, 3, 3, 3) | product: MatmulTiling: 3 is not a PatternProduct
pm.ChainTiling(3, 3, 3, ()) | panels_cut: ChainTiling: 3 is not a ChainPanels
pm.TilingReport(3, 3, 3, 3) | dense: TilingReport: 3 is not a Report
pm.TilingEstimates(3, 3, 3) | found: TilingEstimates: 3 is not a tuple
pm.TilerSwift(3, 3) | comparison: TilerSwift: 3 is not a PublishedComparison
pm.sweep(spec, {'TM': None}) | symbols.TM: symbol TM: None has no values
pm.sweep(spec, {3: [1]}) | symbols: 3 is not a name
pm.sweep(spec, {'TM': pm.powers('m', 2)}) | symbols.TM: powers of 'm' of symbol TM do not grow
pm.sweep(spec, {'TM': pm.divisors(2.5)}) | symbols.TM: 2.5 has no sizes
pm.sweep(spec, {'TM': [1]}, mappings=3) | mappings: 3 is not a list
pm.sweep(spec, {'TM': [1]}, where=3) | where: 3 is not a list
pm.sweep(spec, {'TM': [1]}, where=[3]) | where[0]: 3 is not a comparison
pm.sweep(spec, {'TM': [1]}, objectives=3) | objectives: 3 is not a list
pm.sweep(spec, {'TM': [1]}, objectives=[3]) | objectives[0]: unknown objective 3
pm.sweep(spec, {'TM': [1]}, memory=3, progress=3) | memory=3 is not an amount of memory
pm.sweep(spec, {'TM': [1]}, prune=3, resume='no') | resume='no' is neither True nor False
pm.sweep(spec, {'TM': [1]}, device=3) | device: device=3 is not known
pm.sweep(spec, {'TM': [1]}, eps=True, workers=2.5) | workers=2.5 is not a number of processes
swept.point('a') | row: there is no point 'a'
swept.spec(2.5) | row: there is no point 2.5
swept.spec({}) | row: there is no point a dict
swept.best('enrgy') | objective: the sweep has no objective enrgy
pm.explore(spec, eps={'energy': 0.1}) | eps: {'energy': 0.1} is not a number
pm.design_space(spec, levels='x') | levels: levels='x' is not a number of memories
pm.chain_slope(spec).gain('x') | ChainSlope.gain: 'x' is not a capacity
pm.graph_slope(spec, roles={'heads': ['M']}) | roles.heads: there is no role 'heads'
pm.import_onnx(3) | import_onnx: 3 is not an ONNX model
pm.import_torch(3) | import_torch: 3 is not a program of torch.export
pm.tile(A, tiler=['best']) | tiler: ['best'] is unknown
pm.tile(A, op=['add']) | op=['add'] is not an operation
pm.tile_matmul(A, A, capacity=64, order=3) | order
pm.tile_chain(A, A, A, capacity="x") | capacity 'x' is not a number of words
pm.tile_chain(A, A, A, capacity=[1, 2]) | capacity [1, 2] is not a number of words, nor five
pm.tile_chain(A, A, A, capacity=0) | capacity 0 is not a positive integer
pm.tile_chain(A, A, A, capacity=64, order="BCA") | order 'BCA' is unknown
pm.tile_chain(A, A, A, capacity=64, pes=1) | pes 1 is not an integer of 2 or more
pm.tile_chain(A, A, A, capacity=64, pes=4, split=4) | split 4 leaves one product without multipliers
pm.tile_chain(A, A, A, capacity=64, buffers=0) | buffers 0 is not a positive integer
pm.tile_chain(A, A, A, capacity=64, bandwidth=0) | bandwidth 0 is not a number above 0
pm.tile_chain(A, A, A, capacity=64, launch=3) | tile_chain: 3 is no
pm.tiler_swift_comparison(3) | matrices: 3 is not a list of matrices
pm.estimate_tiling(A, models=3) | models: 3 is not a list
pm.read_tensor(MATRIX, 3, 4) | name: 3 is not a name
pm.SparseTensor.from_dense('A', 3, [1]) | ranks: 3 is not a list of names
pm.SparseTensor.from_coo('A', ['I'], 3, [[0]], [1]) | shape: 3 is not a list of sizes
pm.draw_fibertree(A, limit='x') | limit: a fibertree of 'x' values shows nothing
pm.draw_fibertrees(A) | draw_fibertrees: a SparseTensor is not a list of tensors
pm.execute(teaal, DATA, symbols=3) | symbols: 3 is not a table of values by name
pm.execute(teaal, DATA, rank_sizes=3) | rank_sizes: 3 is not a table of values by name
pm.execute(teaal, DATA, rank_sizes={'J': 'x'}) | rank J has size 'x'
pm.traffic(teaal, 3) | tensors: 3 is not a table of values by name
pm.TrafficReport(3) | TrafficReport: 3 is not a record of traffic
pm.predict(A, tiles=3) | tiles: 3 is not a list
pm.predict(A, slices=True) | slices: slices True
pm.fit_density(3) | fit_density: 3 is not a sparse tensor
pm.fit_density(A, tiles=3) | tiles: 3 is not a list
pm.fit_density(A, units=True) | units: units True
pm.Sampled.from_tensor(A, 'x') | samples: 'x' is not a whole number
"""
CALLS = [tuple(line.split(" | ")) for line in WRONG.splitlines()]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("arguments")
    (folder / "spec.yaml").write_text(STARTER, encoding="utf-8")
    spec, a = pm.load(folder / "spec.yaml"), pm.random_tensor("IJ", (16, 16), 0.25, 1)
    return {
        "pm": pm, "np": np, "spec": spec, "A": a, "MATRIX": MATRIX, "report": pm.evaluate(spec),
        "swept": pm.sweep(spec, {"TM": [1, 2]}, keep="all"), "teaal": pm.load("tensaurus/spmm"),
        "DATA": {"A": a, "B": np.ones((16, 4))}, "folder": folder,
    }  # fmt: skip


@pytest.mark.parametrize(("call", "told"), CALLS, ids=[c for c, _ in CALLS])
def test_it_is_told(call: str, told: str, names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(names["folder"]))
    with pytest.raises(pm.SpecError) as caught:
        eval(call, names)  # the call is one of ours
    found = caught.value.diagnostics
    assert found[0].render().startswith(told)
    for fault in found:
        assert fault.remedy
        assert "\n" not in fault.message
        assert "<class" not in fault.message


def test_there_are_many_calls() -> None:
    assert len({call for call, _ in CALLS}) == len(CALLS) >= 60
