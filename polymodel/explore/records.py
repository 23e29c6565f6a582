"""What the explorer is told and what it returns, as frozen records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from polymodel.mapping.looptree import LoopTree

Sizes = Literal["divisors", "all", "few"]


@dataclass(frozen=True)
class Limits:
    """Which mappings the explorer looks at, besides `keep` and `may_keep` of the memories.

    `max_fused_loops`: loops above a split, per path (None: no limit).
    `max_fused_loops_per_rank_variable`: how often one rank variable may be among them.
    `sizes`: temporal tile sizes are divisors of the enclosing tile, or all; `few` of the divisors are the
    search's own first guess.
    `force_memory_order`: of one Einsum, storage of an outer memory stands above that of an inner one (else
    only of the same tensor).
    `loop_order`: (Einsum, rank variables outermost first): fused loops obey it.
    `min_utilisation`: (component, dimension, least share of the fanout in use).
    `compute`: (Einsum, compute component), where there are several.
    `exchange`: memories in which intermediates may be handed on, besides the first inside the backing storage
    (None: all).
    `fuse`: tensors that must be exchanged inside the backing storage; `unfused`: those that must not.
    """

    max_fused_loops: int | None = None
    max_fused_loops_per_rank_variable: int = 1
    sizes: Sizes = "divisors"
    force_memory_order: bool = True
    loop_order: tuple[tuple[str, tuple[str, ...]], ...] = ()
    min_utilisation: tuple[tuple[str, str, float], ...] = ()
    compute: tuple[tuple[str, str], ...] = ()
    exchange: frozenset[str] | None = None
    fuse: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """One whole mapping: `values` in the order of the objectives, `buffers` as (memory, peak bits)."""

    values: tuple[float, ...]
    energy: float
    latency: float
    buffers: tuple[tuple[str, float], ...]
    tree: LoopTree


@dataclass(frozen=True)
class Stage:
    """What one step of the search looked at. `of`: an Einsum, or `join EINSUM`.

    `templates`: placements and orders; `points`: mappings combined from them; `kept`: those left after
    dominance; `too_large`: those that exceed a memory.
    """

    of: str
    templates: int
    points: int
    kept: int
    too_large: int
    seconds: float


@dataclass(frozen=True)
class Found:
    """The answer. `complete`: False if the time limit cut it short; `unsearched` says what is missing."""

    objectives: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    stages: tuple[Stage, ...]
    complete: bool = True
    unsearched: tuple[str, ...] = ()
    eps: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Progress:
    """Where the search stands; `best` is the best value of the first objective so far, None before any."""

    done: int
    total: int
    of: str
    best: float | None = None


@dataclass(frozen=True)
class Request:
    """All that a search needs to know besides cascade and hierarchy.

    `stop`: asked now and then; once it says True, the search ends as if its time were over.
    """

    objectives: tuple[str, ...] = ("energy", "latency")
    limits: Limits = Limits()
    eps: float = 0.0
    time_limit: float | None = None
    workers: int = 1
    progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    stop: Callable[[], bool] | None = field(default=None, compare=False)
