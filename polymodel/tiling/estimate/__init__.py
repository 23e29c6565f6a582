"""Estimates of tilings without data: the expected result of tilers on data described by a density model.

estimate(Uniform.of(("I", "J"), (10**6, 10**6), nnz=10**9), "add", Elements(128), "qtree").tiles

See docs/tiling/estimates.md for the derivation.
"""

from polymodel.tiling.estimate.expected import Estimate
from polymodel.tiling.estimate.run import Second, estimate

__all__ = ["Estimate", "Second", "estimate"]
