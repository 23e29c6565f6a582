"""Tiles of operand data as a level of an architecture."""
