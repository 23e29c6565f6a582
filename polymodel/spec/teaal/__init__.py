"""The TeAAL dialect: text to checked records, and records to a Workload and a mapping."""
