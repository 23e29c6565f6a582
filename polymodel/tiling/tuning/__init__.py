"""The feedback loop between tilers and the cost model."""
