"""LoopTrees as space-time relations, the data touched per (time, space), and the legality of dependences."""
