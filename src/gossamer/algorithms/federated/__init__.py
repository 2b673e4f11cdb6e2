"""Private federated averaging with correlated noise (paper 001)."""
