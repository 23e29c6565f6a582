"""The measure of capacity of tiles: entries, words, or bits of a format; and entries that never fit."""
