"""Simulation of tiles, token by token, on the blocks of a streaming dataflow: it validates the model of
cycles."""
