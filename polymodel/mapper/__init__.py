"""The search for mappings: partial mappings of every Einsum, joined into the front of whole mappings."""
