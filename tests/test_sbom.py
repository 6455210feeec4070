"""The lists of what artefacts are made of: every crate of the program with its sum, and nothing that is not in it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from harness.package import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import dist
import sbom

pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="NO CARGO HERE: it says what is linked")
TRIPLE = "x86_64-unknown-linux-gnu"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The list of an artefact. Cargo is looked for in the user's home, which these tests do without otherwise."""
    home, os.environ["HOME"] = os.environ["HOME"], pwd.getpwuid(os.getuid()).pw_dir
    try:
        return written(tmp_path_factory.mktemp("dist") / "jitney-static")
    finally:
        os.environ["HOME"] = home


def written(artefact: Path) -> dict:
    """The list, written twice."""
    artefact.write_bytes(b"program")
    first = sbom.write(artefact, "1.2.3", TRIPLE).read_bytes()
    again = sbom.write(artefact, "1.2.3", TRIPLE)
    assert again.name == "jitney-static.cdx.json" and again.read_bytes() == first
    return json.loads(first)


def test_it_names_the_artefact_by_its_sum(document: dict) -> None:
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    about = document["metadata"]["component"]
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"program").hexdigest()}]
    assert (about["name"], about["version"]) == ("jitney", "1.2.3")


def test_every_component_is_named_once_and_every_arrow_leads_to_one(document: dict) -> None:
    refs = [one["bom-ref"] for one in document["components"]]
    assert len(refs) == len(set(refs))
    known = {*refs, document["metadata"]["component"]["bom-ref"]}
    for edge in document["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= known, edge
    reached, left = set(), ["jitney-static"]
    needs = {edge["ref"]: edge["dependsOn"] for edge in document["dependencies"]}
    while left:
        one = left.pop()
        if one not in reached:
            reached.add(one)
            left += needs.get(one, [])
    assert reached == known


def test_crates_have_the_sums_of_the_lock_and_a_licence(document: dict) -> None:
    lock = (ROOT / "Cargo.lock").read_text().split("[[package]]")
    crates = [one for one in document["components"] if one["purl"].startswith("pkg:cargo/")]
    for one in crates:
        (entry,) = [it for it in lock if f'\nname = "{one["name"]}"\nversion = "{one["version"]}"\n' in it]
        assert ("hashes" in one) == ("checksum" in entry), one["name"]
        assert all(f'checksum = "{it["content"]}"' in entry for it in one.get("hashes", [])), one["name"]
        assert one["licenses"], one["name"]
    names = {one["name"] for one in crates}
    assert {"jitney-cli", "jitney-batcher", "tokio", "hyper"} <= names
    assert not names & {"windows-sys", "wasm-bindgen"}


def test_an_image_is_read_layer_by_layer(tmp_path: Path) -> None:
    old = "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9+deb12u1\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n"  # noqa: E501
    new = old.replace("deb12u1", "deb12u9")
    pip = "Metadata-Version: 2.1\nName: Some_Package\nVersion: 3.1\nLicense-Expression: MIT\n\nText\n"
    first = {"var/lib/dpkg/status": old.encode()}
    second = {"var/lib/dpkg/status": new.encode(), "home/venv/x/a.dist-info/METADATA": pip.encode()}
    found = sbom.image_packages(written_image(tmp_path, first, second))
    assert [one["purl"] for one in found] == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u9", "pkg:pypi/some-package@3.1"]
    assert found[1]["licenses"] == [{"expression": "MIT"}]


def test_what_an_image_takes_in_a_registry_counts_each_layer_once(tmp_path: Path) -> None:
    layers = [{"noise": os.urandom(10_000)}, {"zeros": bytes(1_000_000)}]
    alone = [dist.registry_size(written_image(tmp_path, layer)) for layer in layers]
    assert 10_000 < alone[0] < 11_000 and alone[1] < 2_000
    assert dist.registry_size(written_image(tmp_path, *layers)) == sum(alone)


def written_image(folder: Path, *layers: dict[str, bytes]) -> Path:
    """A file as `docker save` and buildah write it: every layer, and links to it by its older name."""
    image = folder / "jitney-image.tar"
    with tarfile.open(image, "w") as whole:
        for at, layer in enumerate(layers):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as files:
                for name, content in layer.items():
                    add(files, name, content)
            add(whole, f"{at}.tar", inner.getvalue())
            link = tarfile.TarInfo(f"older-{at}/layer.tar")
            link.type, link.linkname = tarfile.SYMTYPE, f"../{at}.tar"
            whole.addfile(link)
        add(whole, "manifest.json", json.dumps([{"Layers": [f"{at}.tar" for at in range(len(layers))]}]).encode())
    return image


def add(files: tarfile.TarFile, name: str, content: bytes) -> None:
    """Adds a file."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    files.addfile(info, io.BytesIO(content))
