"""Published results, computed here: `polymodel gallery NAME`, `pm.gallery("NAME")`."""
