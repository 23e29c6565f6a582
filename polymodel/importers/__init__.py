"""Files of other tools become specs: Timeloop's YAML and ONNX graphs; what cannot be converted is named."""
