"""Sparse tensors: densities, formats, effectual actions and cascades run on data. Knows nothing of costs."""
