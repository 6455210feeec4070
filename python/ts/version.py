"""The TorchServe version whose behaviour this package offers."""

__version__ = "0.12.0"
