"""A finite budget of each learner for ever (paper 003)."""
