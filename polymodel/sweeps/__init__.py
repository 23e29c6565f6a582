"""Sweeps: closed forms evaluated over whole grids of symbols, without a Python step per point."""

from polymodel.sweeps.values import all_sizes, divisors, powers

__all__ = ["all_sizes", "divisors", "powers"]
