"""What a tensor workload costs on a memory hierarchy under a mapping, counted exactly."""
