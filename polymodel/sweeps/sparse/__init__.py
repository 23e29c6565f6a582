"""Sweeps on sparse data: what gating, skipping and compressed storage leave at every point of a grid."""
