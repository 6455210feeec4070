"""Functions handlers call while they work."""
