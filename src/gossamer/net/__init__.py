"""Learners on a network."""
