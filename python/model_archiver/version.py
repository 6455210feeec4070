"""The archiver version that manifests name: the TorchServe release this stands in for."""

__version__ = "0.12.0"
