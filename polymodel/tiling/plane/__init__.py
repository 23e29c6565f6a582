"""Two operands on the plane of the two ranks that are cut, and what rectangles of it hold."""
