"""Convert files of other tools to specs (Timeloop's YAML, ONNX graphs and others); everything that cannot be
converted is named."""
