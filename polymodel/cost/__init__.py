"""Counts to joules, seconds, square metres: nothing here counts, and no float precedes energy or seconds."""
