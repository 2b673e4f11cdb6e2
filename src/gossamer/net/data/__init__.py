"""Samples of one node, and where they come from."""
