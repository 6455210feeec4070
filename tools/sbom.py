"""What an artefact of `make dist` is made of, as CycloneDX 1.6: FILE.cdx.json beside each FILE.

Crates are those that cargo says are linked into the program for its platform, with the sums and licences of Cargo.lock
and cargo's metadata; packages of the dashboard are those of ui/package-lock.json that are not for development. Of an
image also what Debian's and Python's package managers list in its layers. The same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "jitney-cli"
LAYER_FILES = re.compile(r"var/lib/dpkg/(status$|status\.d/)|[^/]+\.dist-info/METADATA$")
METADATA_BYTES_MAX = 16 << 20

Component = dict[str, Any]


def crates(triple: str) -> tuple[list[Component], list[dict[str, Any]]]:
    """The crates of the program, and which needs which."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1"]
    told = subprocess.run(
        [*command, "--filter-platform", triple], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    metadata = json.loads(told)
    packages = {one["id"]: one for one in metadata["packages"]}
    needs = {node["id"]: linked(node) for node in metadata["resolve"]["nodes"]}
    (root,) = [key for key, one in packages.items() if one["name"] == PROGRAM]
    found, left = {root: None}, [root]
    while left:
        for key in needs[left.pop()]:
            if key not in found:
                found[key] = None
                left.append(key)
    sums = locked()
    used = sorted((packages[key] for key in found), key=lambda one: (one["name"], one["version"]))
    components = [crate(one, sums.get((one["name"], one["version"]))) for one in used]
    edges = [
        {"ref": purl(packages[key]), "dependsOn": sorted(purl(packages[need]) for need in needs[key])} for key in found
    ]
    return components, sorted(edges, key=lambda one: str(one["ref"]))


def locked() -> dict[tuple[str, str], str]:
    """The sums of crates in Cargo.lock, by name and version."""
    found = re.findall(
        r'^name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"$',
        (ROOT / "Cargo.lock").read_text(),
        re.MULTILINE,
    )
    return {(name, version): checksum for name, version, checksum in found}


def linked(node: dict[str, Any]) -> list[str]:
    """The crates that a crate is built with, without those of its tests."""
    return [one["pkg"] for one in node["deps"] if any(kind["kind"] != "dev" for kind in one["dep_kinds"])]


def purl(package: dict[str, Any]) -> str:
    """The name of a crate everywhere."""
    return str(component("cargo", package["name"], package["version"])["bom-ref"])


def crate(package: dict[str, Any], checksum: str | None) -> Component:
    """A crate as a component."""
    licence = re.sub(r"\s*/\s*", " OR ", package.get("license") or "")
    found = component("cargo", package["name"], package["version"], licence)
    return {**found, "hashes": [{"alg": "SHA-256", "content": checksum}]} if checksum else found


def component(kind: str, name: str, version: str, licence: str = "") -> Component:
    """A component of any kind."""
    path = name.replace("@", "%40")
    ref = f"pkg:{kind}/{path}@{version.replace('+', '%2B')}"
    about = {"type": "library", "bom-ref": ref, "name": name, "version": version, "purl": ref}
    if not licence.strip():
        return about
    is_expression = re.fullmatch(r"[\w.()+-]+( (OR|AND|WITH) [\w.()+-]+)*", licence.strip())
    told = {"expression": licence} if is_expression else {"license": {"name": licence}}
    return {**about, "licenses": [told]}


def dashboard() -> list[Component]:
    """The npm packages whose code is in the dashboard's files."""
    packages = json.loads((ROOT / "ui" / "package-lock.json").read_text())["packages"]
    found = [
        component("npm", path.rpartition("node_modules/")[2], one["version"], one.get("license", ""))
        for path, one in packages.items()
        if path and not one.get("dev") and not one.get("devOptional")
    ]
    return sorted(found, key=lambda one: str(one["bom-ref"]))


def image_packages(image: Path) -> list[Component]:
    """What package managers list in the layers of an image; of a file that several layers have the last counts."""
    texts: dict[str, str] = {}
    with tarfile.open(image) as whole:
        for layer in layers(whole):
            with tarfile.open(fileobj=layer) as files:
                for member in files:
                    name = member.name.removeprefix("./")
                    if member.isfile() and LAYER_FILES.search(name) and member.size <= METADATA_BYTES_MAX:
                        texts[name] = read(files, member)
    found = {str(one["bom-ref"]): one for name, text in texts.items() for one in listed(name, text)}
    return [found[ref] for ref in sorted(found)]


def layers(image: tarfile.TarFile) -> Iterator[IO[bytes]]:
    """The layers of an image, each once: its file has them under older names, too, as links."""
    (manifest,) = json.loads(read(image, "manifest.json"))
    for name in manifest["Layers"]:
        if layer := image.extractfile(name):
            yield layer


def listed(name: str, text: str) -> Iterator[Component]:
    """The packages of one list."""
    parser = HeaderParser()
    if name.endswith("METADATA"):
        fields = parser.parsestr(text)
        licence = fields["License-Expression"] or ""
        yield component("pypi", fields["Name"].lower().replace("_", "-"), fields["Version"], licence)
        return
    for paragraph in text.split("\n\n"):
        fields = parser.parsestr(paragraph.strip() + "\n")
        if fields["Package"] and "installed" in (fields["Status"] or "installed").split():
            yield component("deb", f"debian/{fields['Package']}", fields["Version"])


def read(files: tarfile.TarFile, member: str | tarfile.TarInfo) -> str:
    """A text of a tar."""
    opened = files.extractfile(member)
    assert opened is not None
    return opened.read().decode("utf-8", "replace")


def write(artefact: Path, version: str, triple: str, *, is_image: bool = False) -> Path:
    """Writes the list of one artefact beside it."""
    components, edges = crates(triple)
    more = [*dashboard(), *(image_packages(artefact) if is_image else [])]
    about = {
        "type": "container" if is_image else "application",
        "bom-ref": artefact.name,
        "name": "jitney",
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(artefact.read_bytes()).hexdigest()}],
    }
    program = next(str(one["bom-ref"]) for one in components if one["name"] == PROGRAM)
    beside = [str(one["bom-ref"]) for one in more]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": [*components, *more],
        "dependencies": [{"ref": artefact.name, "dependsOn": [program, *beside]}, *edges],
    }
    path = artefact.with_name(f"{artefact.name}.cdx.json")
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
