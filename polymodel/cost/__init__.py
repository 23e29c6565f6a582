"""Costs from counts: joules, seconds, square metres. Nothing is counted here, and floats occur only in energy
and time."""
