"""What a node shows of itself: counts, its decision, its log, and the page that serves them."""
