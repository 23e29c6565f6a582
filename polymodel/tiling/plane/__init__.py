"""Two operands on the plane of the two ranks that are tiled, and the contents of rectangles of that plane."""
