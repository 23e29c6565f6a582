"""The loop between tilers and model."""
