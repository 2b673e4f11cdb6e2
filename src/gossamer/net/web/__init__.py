"""What a node shows: its board, and the pages that serve it."""
