"""LoopTree -> space-time relations; (time, space) -> data; legality of the dependences."""
