"""The archiver version that manifests name: the last release of TorchServe's workflow archiver."""

__version__ = "0.2.15"
