"""Ray Serve's private names that its documents use all the same."""
