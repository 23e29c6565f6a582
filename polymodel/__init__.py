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

from polymodel.errors import Diagnostic, NotSeparable, Place, PolymodelError, Refused, SpecError

if TYPE_CHECKING:
    from polymodel.analysis.engine import Problem as Problem
    from polymodel.evaluate import closed_forms as closed_forms
    from polymodel.evaluate import evaluate as evaluate
    from polymodel.evaluate import evaluate_problem as evaluate_problem
    from polymodel.loading import Spec as Spec
    from polymodel.loading import load as load
    from polymodel.mapping.looptree import LoopTree as LoopTree
    from polymodel.report.compare import compare as compare
    from polymodel.report.report import Report as Report

__version__ = "0.1.0"

# Name -> module that has it: each is imported when the name is first used.
_LAZY = {
    "load": "polymodel.loading",
    "Spec": "polymodel.loading",
    "Problem": "polymodel.analysis.engine",
    "LoopTree": "polymodel.mapping.looptree",
    "Report": "polymodel.report.report",
    "compare": "polymodel.report.compare",
    "evaluate_problem": "polymodel.evaluate",
    "closed_forms": "polymodel.evaluate",
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
    "NotSeparable",
    "Place",
    "PolymodelError",
    "Refused",
    "SpecError",
    "evaluate",
    *_LAZY,
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'polymodel' has no attribute {name!r}")
    found = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


class _Facade(ModuleType):
    """Importing the module `polymodel.evaluate` would put it where the function of that name belongs."""

    @property
    def evaluate(self) -> object:
        return importlib.import_module("polymodel.evaluate").evaluate

    @evaluate.setter
    def evaluate(self, module: ModuleType) -> None:
        """Ignore the module that the import system puts here."""


sys.modules[__name__].__class__ = _Facade


def __dir__() -> list[str]:
    return sorted([*globals(), "evaluate", *_LAZY])
