"""Gating, skipping and compressed storage: dense counts in, sparse counts out (docs/sparse/actions.md)."""
