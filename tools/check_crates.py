"""Fails where a crate depends on another one against the design (see ARCHITECTURE.md), uses another room's library, or
names a library that it does not use.

python tools/check_crates.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from rust_source import ROOT

ARROWS = {
    "jitney-cli": {
        "jitney-server",
        "jitney-engine",
        "jitney-load",
        "jitney-net",
        "jitney-onnx",
        "jitney-settings",
        "jitney-sim",
        "jitney-telemetry",
    },
    "jitney-server": {
        "jitney-engine",
        "jitney-jobs",
        "jitney-net",
        "jitney-proto",
        "jitney-settings",
        "jitney-telemetry",
    },
    "jitney-telemetry": {"jitney-engine", "jitney-net", "jitney-proto", "jitney-settings"},
    "jitney-net": {"jitney-memory", "jitney-settings"},
    "jitney-onnx": {"jitney-engine", "jitney-jpeg"},
    "jitney-engine": {"jitney-batcher", "jitney-memory", "jitney-store", "jitney-settings"},
    "jitney-store": {"jitney-settings"},
    "jitney-sim": {"jitney-batcher"},
    "jitney-load": {"jitney-proto"},
    "jitney-lab": {"jitney-sim", "jitney-batcher"},
    "jitney-batcher": set(),
    "jitney-jobs": set(),
    "jitney-jpeg": set(),
    "jitney-memory": set(),
    "jitney-settings": set(),
    "jitney-proto": set(),
}
"""Who may depend on whom; a new arrow needs a decision record."""

ALONE = ("jitney-batcher", "jitney-jpeg")
"""Crates that need no library at all."""

OWNERS = {
    "hyper": ("jitney-net", "jitney-server"),
    "hyper-util": ("jitney-net", "jitney-server"),
    "http": ("jitney-net", "jitney-telemetry", "jitney-server", "jitney-load"),
    "http-body-util": ("jitney-server",),
    "multer": ("jitney-server",),
    "h2": ("jitney-load",),
    "httparse": ("jitney-load", "jitney-net"),
    "httpdate": ("jitney-net",),
    "rten": ("jitney-onnx",),
    "rten-tensor": ("jitney-onnx",),
    "zip": ("jitney-store", "jitney-cli"),
    "tar": ("jitney-store", "jitney-cli"),
    "clap": ("jitney-cli",),
    "reqwest": ("jitney-cli",),
    "object_store": ("jitney-cli",),
    "tokio-rustls": ("jitney-net", "jitney-server", "jitney-load", "jitney-engine"),
    "java-properties": ("jitney-cli",),
    "redb": ("jitney-jobs",),
    "tokio-postgres": ("jitney-jobs",),
    "tracing-subscriber": ("jitney-cli",),
}
"""Libraries that belong to a crate; used elsewhere they would carry its business with them. Archives are read by the
store and packed by the command line."""

Packages = dict[str, list[dict[str, Any]]]
"""The dependencies of every crate, by the crate's name."""


def packages() -> Packages:
    """As cargo knows them."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version", "1", "--offline"]
    metadata = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return {package["name"]: package["dependencies"] for package in json.loads(metadata)["packages"]}


def problems(found: Packages) -> list[str]:
    """Every dependency against the design."""
    lines = []
    for name, needed in sorted(found.items()):
        for each in needed:
            other = each["name"]
            if other in found and other not in ARROWS.get(name, set()) and each["kind"] != "dev":
                lines.append(f"a new arrow: {name} -> {other}; it needs a decision record (docs/adr)")
            elif name in ALONE and each["kind"] != "dev":
                lines.append(f"{name} depends on {other}; it must need nothing")
            elif name not in OWNERS.get(other, (name,)):
                lines.append(f"{other} is used by {name}; only {' and '.join(OWNERS[other])} may")
    return lines


def unused(found: Packages, root: Path) -> list[str]:
    """Every dependency that no source of its crate names."""
    lines = []
    for name, needed in sorted(found.items()):
        folder = root / "crates" / name.removeprefix("jitney-")
        sources = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.rs"))
        lines += [
            f"{name} does not use {each['name']}: take it out of its Cargo.toml"
            for each in needed
            if sources and not re.search(rf"\b{each['name'].replace('-', '_')}\b", sources)
        ]
    return lines


def main() -> int:
    """Prints what breaks the rule; 1 if anything does."""
    found = packages()
    lines = problems(found) + unused(found, ROOT)
    print("\n".join(lines) or "crates: every arrow points as designed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
