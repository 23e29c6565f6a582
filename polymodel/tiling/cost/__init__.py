"""The cost of a tiling, and lower bounds on the cost of any tiling."""
