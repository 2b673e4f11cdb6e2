"""Prediction from the advice of experts, around a server (paper 004)."""
