"""What tests of handlers import from TorchServe."""
