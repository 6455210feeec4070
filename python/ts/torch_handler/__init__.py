"""TorchServe's stock handlers and request envelopes."""
