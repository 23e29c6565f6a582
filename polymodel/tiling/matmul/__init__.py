"""Matrix multiplication with reuse: which tiles of A, B and Z = A B are read, written and computed."""
