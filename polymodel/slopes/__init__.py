"""Ski slopes: the least traffic of any mapping for every buffer capacity; Einsums, chains and graphs."""
