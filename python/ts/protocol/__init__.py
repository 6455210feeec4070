"""What is left of TorchServe's worker protocol for handlers that import from it."""
