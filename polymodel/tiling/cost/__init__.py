"""What a cutting costs, and the least that any cutting can cost."""
