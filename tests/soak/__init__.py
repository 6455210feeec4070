"""A long run under load while things go wrong: `make soak`."""
