"""Searches over mappings: the ski slope of one Einsum."""
