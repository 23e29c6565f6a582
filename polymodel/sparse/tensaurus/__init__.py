"""Tensaurus (HPCA 2020): the costs of its four kernels on sparse and dense data.

    report = tensaurus("MTTKRP", tensor_or_model, F=32)     # also polymodel.tensaurus
    report.stages, report.flows, report.seconds, report.rows()

`Machine` and `Tiles` are its parameters, `bandwidth` compares formats, `published` compares the paper's
numbers with the model's. The chapter is docs/sparse/tensaurus.md.
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
