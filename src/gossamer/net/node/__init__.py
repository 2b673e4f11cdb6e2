"""The node: its loop, its learner, its neighbours, what it says and hears, and what it may still spend."""
