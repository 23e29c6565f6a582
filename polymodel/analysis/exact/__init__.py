"""The exact engine: ISL relations, counted with barvinok."""

from __future__ import annotations

from polymodel.analysis.exact.engine import ENGINE, Exact

__all__ = ["ENGINE", "Exact"]
