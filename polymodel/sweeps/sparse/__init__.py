"""Sweeps on sparse data: counts after gating, skipping and compressed storage at every point of a grid."""
