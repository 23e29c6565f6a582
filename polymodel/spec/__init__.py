"""YAML and Python objects -> located, validated schema objects."""
