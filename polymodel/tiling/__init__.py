"""Tiling of sparse operands for the memories of CGRAs, and the cost of each tiling."""
