"""What users call of one mapping or one set of data: evaluate, closed forms, execute, traffic."""
