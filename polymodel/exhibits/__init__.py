"""Published results, recomputed by this package: `polymodel gallery NAME`, `pm.gallery("NAME")`."""
