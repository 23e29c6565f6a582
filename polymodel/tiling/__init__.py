"""Cutting sparse operands into tiles for memories of CGRAs, and what each cutting costs."""
