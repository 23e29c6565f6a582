"""Tiles as a level of an architecture."""
