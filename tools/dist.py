"""Builds what users install into dist/, with SHA256SUMS and a list of what is in each file (CycloneDX, tools/sbom.py),
and prints the sizes: `make dist`.

    python tools/dist.py [--profile release] [--tools VENV] [static] [wheel] [image]

- static: the program for x86-64 Linux with glibc inside. It needs no other file, and runs ONNX files with the
  built-in engine only.
- wheel: the program, the workers and the Python package, for every Linux with glibc 2.17 or newer. Linked by zig, whose
  stubs of glibc are that old.
- image: an OCI archive from the Dockerfile, without torch, with the wheel's program. Needs buildah and base images.

The crates are compiled once for all of them; only the last step, which links, is done twice.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
GLIBC = "2.17"
KINDS = ("static", "wheel", "image")


def run(*command: str | Path, **variables: str) -> None:
    """Runs a command of the build in the root, and ends with it when it fails."""
    print("+", *command, flush=True)
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env={**os.environ, **variables})
    if done.returncode:
        sys.exit(f"failed: {command[0]}")


def version() -> str:
    """The version of all parts."""
    [text] = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return text


def target() -> Path:
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def is_static(program: Path) -> bool:
    """Whether an ELF file asks for no interpreter, as dynamic programs do (a program header of type 3)."""
    data = program.read_bytes()
    start, size, count = (int.from_bytes(data[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    return all(int.from_bytes(data[at : at + 4], "little") != 3 for at in range(start, start + size * count, size))


def build_static(profile: str) -> Path:
    """Only the last crate is compiled for it: the others do not ask, and libc is chosen when all are linked."""
    cargo = os.environ.get("CARGO", "cargo")
    flags = ["--locked", "--profile", profile, "-p", "jitney-cli", "--bin", "jitney"]
    run(cargo, "rustc", *flags, "--", "-C", "target-feature=+crt-static")
    built = DIST / f"jitney-{version()}-{platform.machine()}-linux-static"
    shutil.copy(target() / profile / "jitney", built)
    if not is_static(built):
        sys.exit(f"{built} is not static")
    return built


def build_wheel(profile: str, tools: Path) -> Path:
    """A wheel whose program asks for no symbol that is newer than GLIBC; maturin checks that."""
    for old in DIST.glob("jitney-*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        linker = Path(scratch) / "linker"
        triple = f"{platform.machine()}-linux-gnu.{GLIBC}"
        linker.write_text(f'#!/bin/sh\nexec "{tools}/bin/maturin" zig cc -- -target {triple} "$@"\n')
        linker.chmod(0o755)
        tag = f"manylinux_{GLIBC.replace('.', '_')}"
        flags = ["--locked", "--profile", profile, "--compatibility", tag, "--out", DIST]
        path = f"{tools}/bin:{os.environ.get('PATH', '')}"
        run(tools / "bin/maturin", "build", *flags, "--", "-C", f"linker={linker}", PATH=path)
    (wheel,) = DIST.glob("jitney-*.whl")
    return wheel


def build_image(wheel: Path) -> Path:
    """The image, in a file that docker and podman load. BUILDAH_FLAGS and IMAGE_ARGS change how it is built."""
    if not shutil.which("buildah"):
        sys.exit("buildah is not installed; `docker build .` builds the same image")
    buildah = ["buildah", *os.environ.get("BUILDAH_FLAGS", "").split()]
    program = f"localhost/jitney-program:{version()}"
    image = f"localhost/jitney:{version()}"
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".data/scripts/jitney")]
            Path(scratch, "jitney").write_bytes(archive.read(name))
        Path(scratch, "jitney").chmod(0o755)
        Path(scratch, "Dockerfile").write_text("FROM scratch\nCOPY jitney /jitney\n")
        run(*buildah, "bud", "--quiet", "--tag", program, scratch)
    arguments = [f"PROGRAM={program}", f"VERSION={version()}", "PYTHON_PACKAGES="]
    arguments += os.environ.get("IMAGE_ARGS", "").split()
    flags = [word for argument in arguments for word in ("--build-arg", argument)]
    # Docker's format, since OCI's has no health check.
    run(*buildah, "bud", "--isolation", "chroot", "--format", "docker", *flags, "--tag", image, ".")
    built = DIST / f"jitney-{version()}-{platform.machine()}-image.tar"
    built.unlink(missing_ok=True)
    run(*buildah, "push", "--quiet", image, f"docker-archive:{built}:{image}")
    return built


def write_parts(artefact: Path) -> None:
    """The list of what an artefact is made of."""
    triple = f"{platform.machine()}-unknown-linux-gnu"
    sbom.write(artefact, version(), triple, is_image=artefact.name.endswith("-image.tar"))


def write_sums() -> None:
    """The sums of everything in dist/, and the sizes on the screen."""
    files = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print()
    for path in files:
        print(f"{path.stat().st_size / 1e6:9.1f} MB  {path.relative_to(ROOT)}")


def main() -> None:
    """Builds the named kinds, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="static, wheel, image; all without any")
    parser.add_argument("--profile", default="release", help="the cargo profile")
    parser.add_argument(
        "--tools", type=Path, default=ROOT / ".venv/dist", help="an environment with maturin and ziglang"
    )
    given = parser.parse_args()
    kinds = given.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    DIST.mkdir(exist_ok=True)
    if "static" in kinds:
        write_parts(build_static(given.profile))
    if "wheel" in kinds:
        write_parts(build_wheel(given.profile, given.tools.resolve()))
    if "image" in kinds:
        wheels = sorted(DIST.glob("jitney-*.whl"))
        if not wheels:
            parser.error("the image has the wheel's program: build the wheel first")
        write_parts(build_image(wheels[-1]))
    write_sums()


if __name__ == "__main__":
    main()
