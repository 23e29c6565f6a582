"""Tensaurus (HPCA 2020): what its four kernels cost on sparse and dense data.

    report = tensaurus("MTTKRP", tensor_or_model, F=32)     # also polymodel.tensaurus
    report.stages, report.flows, report.seconds, report.rows()

`Machine` and `Tiles` are its parameters, `bandwidth` compares formats, `published` puts the paper's numbers
beside the model's. docs/sparse/tensaurus.md is the chapter.
"""

from polymodel.sparse.tensaurus.anchors import Record, published
from polymodel.sparse.tensaurus.machine import Machine, Tiles
from polymodel.sparse.tensaurus.predict import tensaurus
from polymodel.sparse.tensaurus.report import KernelStage, Row, TensaurusReport, TensorTransfer
from polymodel.sparse.tensaurus.streams import DDR4, Channel, Efficiency, bandwidth

__all__ = [
    "DDR4",
    "Channel",
    "Efficiency",
    "KernelStage",
    "Machine",
    "Record",
    "Row",
    "TensaurusReport",
    "TensorTransfer",
    "Tiles",
    "bandwidth",
    "published",
    "tensaurus",
]
