"""Co-design: architectures and mappings in one search, with one joint front."""
