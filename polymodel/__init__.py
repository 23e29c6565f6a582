"""What a tensor workload costs on a memory hierarchy under a mapping, counted exactly.

import polymodel as pm
spec = pm.load("architecture.yaml", "workload.yaml", "mapping.yaml", N_TOKENS=2048)
report = pm.evaluate(spec)
print(report)
report.tiles, report.accesses, report.energy      # DataFrames
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from polymodel.errors import (
    Diagnostic,
    LimitReached,
    MemoryUp,
    NotSeparable,
    Place,
    PolymodelError,
    Refused,
    SpecError,
    TimeUp,
)

if TYPE_CHECKING:
    from polymodel.analysis.engine import Problem as Problem
    from polymodel.evaluate import closed_forms as closed_forms
    from polymodel.evaluate import evaluate as evaluate
    from polymodel.evaluate import evaluate_problem as evaluate_problem
    from polymodel.evaluate import execute as execute
    from polymodel.evaluate import traffic as traffic
    from polymodel.governor import limits as limits
    from polymodel.importers.imported import Imported as Imported
    from polymodel.importers.onnx import import_onnx as import_onnx
    from polymodel.importers.timeloop import import_timeloop as import_timeloop
    from polymodel.loading import Spec as Spec
    from polymodel.loading import load as load
    from polymodel.loading import mapping_to_yaml as mapping_to_yaml
    from polymodel.mapper.front import Front as Front
    from polymodel.mapper.mapspace import mapspace as mapspace
    from polymodel.mapper.records import Limits as Limits
    from polymodel.mapper.run import explore as explore
    from polymodel.mapping.looptree import LoopTree as LoopTree
    from polymodel.report.compare import compare as compare
    from polymodel.report.compiled import compile_cell as compile_cell
    from polymodel.report.draw import draw_architecture as draw_architecture
    from polymodel.report.draw import draw_cascade as draw_cascade
    from polymodel.report.draw import draw_looptree as draw_looptree
    from polymodel.report.execution import ExecutionReport as ExecutionReport
    from polymodel.report.predictions import predict as predict
    from polymodel.report.report import Report as Report
    from polymodel.report.sparse import SparseReport as SparseReport
    from polymodel.report.sparse import sparsify as sparsify
    from polymodel.report.svg_fibertree import draw_fibertree as draw_fibertree
    from polymodel.report.svg_fibertree import draw_fibertrees as draw_fibertrees
    from polymodel.report.svg_fibertree import draw_parts as draw_parts
    from polymodel.report.tiling.estimates import TilingEstimates as TilingEstimates
    from polymodel.report.tiling.estimates import estimate_tiling as estimate_tiling
    from polymodel.report.tiling.inputs import elements as elements
    from polymodel.report.tiling.inputs import words as words
    from polymodel.report.tiling.level import TilingReport as TilingReport
    from polymodel.report.tiling.level import tile_levels as tile_levels
    from polymodel.report.tiling.matmul import MatmulTiling as MatmulTiling
    from polymodel.report.tiling.matmul import tile_matmul as tile_matmul
    from polymodel.report.tiling.swift import TilerSwift as TilerSwift
    from polymodel.report.tiling.swift import tiler_swift_comparison as tiler_swift_comparison
    from polymodel.report.tiling.tile import Tiling as Tiling
    from polymodel.report.tiling.tile import tile as tile
    from polymodel.report.tiling.tune import Tuning as Tuning
    from polymodel.report.tiling.tune import tune_tiling as tune_tiling
    from polymodel.report.traffic import TrafficReport as TrafficReport
    from polymodel.slopes.chain_slope import chain_slope as chain_slope
    from polymodel.slopes.design_space import design_space as design_space
    from polymodel.slopes.graph_slope import graph_slope as graph_slope
    from polymodel.slopes.ski_slope import ski_slope as ski_slope
    from polymodel.sparse.density import Actual as Actual
    from polymodel.sparse.density import Banded as Banded
    from polymodel.sparse.density import FixedStructured as FixedStructured
    from polymodel.sparse.density import Hierarchical as Hierarchical
    from polymodel.sparse.density import RankNnz as RankNnz
    from polymodel.sparse.density import Uniform as Uniform
    from polymodel.sparse.density.random import random_tensor as random_tensor
    from polymodel.sparse.files import read_tensor as read_tensor
    from polymodel.sparse.files import write_tensor as write_tensor
    from polymodel.sparse.formats.footprint import footprint as footprint
    from polymodel.sparse.generate import generate_tensor as generate_tensor
    from polymodel.sparse.tensaurus.predict import tensaurus as tensaurus
    from polymodel.sparse.tensor import SparseTensor as SparseTensor
    from polymodel.sweep.result import Sweep as Sweep
    from polymodel.sweep.run import sweep as sweep
    from polymodel.sweep.values import all_sizes as all_sizes
    from polymodel.sweep.values import divisors as divisors
    from polymodel.sweep.values import powers as powers
    from polymodel.tiling.cost.model import Launch as Launch
    from polymodel.tiling.fits.stored import stored as stored
    from polymodel.tiling.plane.operands import Alone as Alone
    from polymodel.tiling.plane.operands import Rolled as Rolled
    from polymodel.tiling.plane.operands import Transposed as Transposed

__version__ = "0.1.0"

# Name -> module that has it: each is imported when the name is first used.
_LAZY = {
    "limits": "polymodel.governor",
    "load": "polymodel.loading",
    "Spec": "polymodel.loading",
    "Imported": "polymodel.importers.imported",
    "import_timeloop": "polymodel.importers.timeloop",
    "mapping_to_yaml": "polymodel.loading",
    "Problem": "polymodel.analysis.engine",
    "import_onnx": "polymodel.importers.onnx",
    "LoopTree": "polymodel.mapping.looptree",
    "Report": "polymodel.report.report",
    "SparseReport": "polymodel.report.sparse",
    "sparsify": "polymodel.report.sparse",
    "predict": "polymodel.report.predictions",
    "random_tensor": "polymodel.sparse.density.random",
    "generate_tensor": "polymodel.sparse.generate",
    "compare": "polymodel.report.compare",
    "compile_cell": "polymodel.report.compiled",
    "evaluate_problem": "polymodel.evaluate",
    "execute": "polymodel.evaluate",
    "traffic": "polymodel.evaluate",
    "TrafficReport": "polymodel.report.traffic",
    "closed_forms": "polymodel.evaluate",
    "chain_slope": "polymodel.slopes.chain_slope",
    "design_space": "polymodel.slopes.design_space",
    "graph_slope": "polymodel.slopes.graph_slope",
    "explore": "polymodel.mapper.run",
    "Front": "polymodel.mapper.front",
    "Limits": "polymodel.mapper.records",
    "mapspace": "polymodel.mapper.mapspace",
    "ski_slope": "polymodel.slopes.ski_slope",
    "Sweep": "polymodel.sweep.result",
    "ExecutionReport": "polymodel.report.execution",
    **dict.fromkeys(("draw_architecture", "draw_cascade", "draw_looptree"), "polymodel.report.draw"),
    **dict.fromkeys(("draw_fibertree", "draw_fibertrees", "draw_parts"), "polymodel.report.svg_fibertree"),
    **dict.fromkeys(("read_tensor", "write_tensor"), "polymodel.sparse.files"),
    "footprint": "polymodel.sparse.formats.footprint",
    "tensaurus": "polymodel.sparse.tensaurus.predict",
    "SparseTensor": "polymodel.sparse.tensor",
    **dict.fromkeys(
        ("Actual", "Banded", "FixedStructured", "Hierarchical", "RankNnz", "Uniform"),
        "polymodel.sparse.density",
    ),
    **dict.fromkeys(("tile", "Tiling"), "polymodel.report.tiling.tile"),
    **dict.fromkeys(("tile_matmul", "MatmulTiling"), "polymodel.report.tiling.matmul"),
    **dict.fromkeys(("elements", "words"), "polymodel.report.tiling.inputs"),
    **dict.fromkeys(("estimate_tiling", "TilingEstimates"), "polymodel.report.tiling.estimates"),
    **dict.fromkeys(("tile_levels", "TilingReport"), "polymodel.report.tiling.level"),
    **dict.fromkeys(("tiler_swift_comparison", "TilerSwift"), "polymodel.report.tiling.swift"),
    **dict.fromkeys(("tune_tiling", "Tuning"), "polymodel.report.tiling.tune"),
    "Launch": "polymodel.tiling.cost.model",
    **dict.fromkeys(("Alone", "Rolled", "Transposed"), "polymodel.tiling.plane.operands"),
    "stored": "polymodel.tiling.fits.stored",
    **dict.fromkeys(("all_sizes", "divisors", "powers"), "polymodel.sweep.values"),
    **dict.fromkeys(
        (
            "Action",
            "Arch",
            "Compute",
            "ComputeUnit",
            "Container",
            "Einsum",
            "EinsumRenames",
            "EnergyModel",
            "Fanout",
            "Link",
            "MappingSpec",
            "Memory",
            "Nested",
            "Operations",
            "Pipeline",
            "Rename",
            "Renames",
            "Sequential",
            "Spatial",
            "Storage",
            "Temporal",
            "TensorAccess",
            "Tensors",
            "Toll",
            "Workload",
        ),
        "polymodel.spec",
    ),
}

__all__ = [
    "Diagnostic",
    "LimitReached",
    "MemoryUp",
    "NotSeparable",
    "Place",
    "PolymodelError",
    "Refused",
    "SpecError",
    "TimeUp",
    "evaluate",
    "sweep",
    *_LAZY,
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'polymodel' has no attribute {name!r}")
    found = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


class _Facade(ModuleType):
    """Importing the modules `polymodel.evaluate` and `polymodel.sweep` would put them where the functions of
    these names belong."""

    @property
    def evaluate(self) -> object:
        return importlib.import_module("polymodel.evaluate").evaluate

    @evaluate.setter
    def evaluate(self, module: ModuleType) -> None:
        """Ignore the module that the import system puts here."""

    @property
    def sweep(self) -> object:
        return importlib.import_module("polymodel.sweep.run").sweep

    @sweep.setter
    def sweep(self, module: ModuleType) -> None:
        """Ignore the package that the import system puts here."""


sys.modules[__name__].__class__ = _Facade


def __dir__() -> list[str]:
    """What users call, and the module's own dunder names; not what this file imports, nor rooms in use."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
