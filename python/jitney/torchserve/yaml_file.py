"""Reading YAML files, for those who have PyYAML."""

from __future__ import annotations

from typing import Any


def get_yaml_config(yaml_file_path: str) -> dict[str, Any]:
    """Reads a yaml file; PyYAML must be installed."""
    try:
        import yaml
    except ImportError as error:
        raise ImportError(f"reading {yaml_file_path} needs PyYAML: pip install pyyaml") from error
    with open(yaml_file_path, encoding="utf-8") as file:
        content: dict[str, Any] = yaml.safe_load(file) or {}
    return content
