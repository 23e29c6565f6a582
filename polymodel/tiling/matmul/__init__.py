"""Matrix multiplication with reuse: what tiles of A, B and Z = A B are fetched, written and computed."""
