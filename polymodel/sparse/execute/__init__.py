"""Cascades run on sparse data: results, effectual counts, coordinate accesses and three times, all exact."""
