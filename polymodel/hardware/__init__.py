"""Co-design: machines and mappings in one search, one front of both."""
