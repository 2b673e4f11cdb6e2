"""Gossip in blocks: follow-the-leader and conditional gradients, exact and private (paper 000)."""
