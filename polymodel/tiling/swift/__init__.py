"""A reproduction of Tiler-Swift, and the figures published with it."""
