"""The protocol that every engine follows, and the problem it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from polymodel.analysis.result import Analysis
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapping.looptree import LoopTree, Reuse
from polymodel.workload.einsum import Cascade


@dataclass(frozen=True)
class Problem:
    """A checked workload, architecture and mapping (every tile shape a number)."""

    cascade: Cascade
    hierarchy: Hierarchy
    tree: LoopTree


class Engine(Protocol):
    """`reuse` overrides every storage node's policy; `live` asks for element-level lifetimes."""

    name: str

    def analyse(self, problem: Problem, *, reuse: Reuse | None = None, live: bool = False) -> Analysis: ...
