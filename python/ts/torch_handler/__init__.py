"""TorchServe's stock handlers and their bases, written anew; they need torch in the worker's Python."""
