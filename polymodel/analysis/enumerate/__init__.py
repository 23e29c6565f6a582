"""The enumerating engine: it walks small cases element by element, and is the reference for the others."""

from __future__ import annotations

from polymodel.analysis.enumerate.engine import Enumerate
from polymodel.analysis.enumerate.legality import OrderViolation, violation

ENGINE = Enumerate()

__all__ = ["ENGINE", "Enumerate", "OrderViolation", "violation"]
