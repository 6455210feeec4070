"""The worker protocol of TorchServe's own frontend, which Jitney never starts."""
