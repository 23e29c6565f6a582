"""Tiler-Swift as it was built, and the figures published with it."""
