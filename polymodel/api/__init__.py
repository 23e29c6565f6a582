"""The public functions on one mapping or one set of data: evaluate, closed_forms, execute, traffic and
others."""
