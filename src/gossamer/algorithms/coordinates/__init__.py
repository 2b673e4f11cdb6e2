"""Dual averaging of the coordinates of one objective, and its baselines (paper 002)."""
