"""Tiles run token by token on blocks of a streaming dataflow: the check of what the model of cycles says."""
