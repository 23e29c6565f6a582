"""Everything that cuts: trees, strips, panels, guillotine cuts, merging, and the best of them."""
