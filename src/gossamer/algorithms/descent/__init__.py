"""Gradient descent: alone, around a server, and by gossip, exact and with noise."""
