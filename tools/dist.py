"""Builds what users install into dist/, with SHA256SUMS and a list of what is in each file (CycloneDX, tools/sbom.py),
and prints the sizes: `make dist`.

    python tools/dist.py [--profile release] [--tools VENV] [--machine x86_64|aarch64] [static] [wheel] [image]
    python tools/dist.py --sizes

- static: the program for Linux with a C library inside: glibc, or musl for another machine than this one. It needs no
  other file, and runs ONNX files with the built-in engine only.
- wheel: the program, the workers and the Python package, for every Linux with glibc 2.17 or newer. Linked by zig, whose
  stubs of glibc are that old.
- image: an OCI archive from the Dockerfile, without torch, with the wheel's program. Needs buildah and base images; for
  another machine also a kernel that runs its programs by qemu (tests/image-base sees to both).

The crates are compiled for the static program, and once more for the wheel and the image. For another machine zig is
compiler and linker, so that nothing of that machine's has to be installed; rustup has its standard library.
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
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
GLIBC = "2.17"
KINDS = ("static", "wheel", "image")
STATIC_FLAGS = '--cfg getrandom_backend="linux_raw"'
"""Random numbers by the system call itself: a static program cannot look up libc's function, and would open
/dev/random, which a root file system that has nothing else lacks."""
RUN_BY_QEMU = "/proc/sys/fs/binfmt_misc/qemu-"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Each with its name among images."""


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


@contextmanager
def zig(tools: Path, triple: str) -> Iterator[tuple[Path, Path]]:
    """Programs that compile and link for zig's triple, and that pack libraries."""
    with tempfile.TemporaryDirectory() as scratch:
        compiler, packer = Path(scratch, "cc"), Path(scratch, "ar")
        compiler.write_text(f'#!/bin/sh\nexec "{tools}/bin/maturin" zig cc -- -target {triple} "$@"\n')
        packer.write_text(f'#!/bin/sh\nexec "{tools}/bin/maturin" zig ar -- "$@"\n')
        for program in (compiler, packer):
            program.chmod(0o755)
        yield compiler, packer


def search_path(tools: Path) -> str:
    """Where the tools lie, before anything else."""
    return f"{tools}/bin:{os.environ.get('PATH', '')}"


@contextmanager
def cross_compilers(tools: Path, rust_triple: str, zig_triple: str) -> Iterator[dict[str, str]]:
    """The variables by which cargo and the crates with C in them compile for another machine."""
    with zig(tools, zig_triple) as (compiler, packer):
        name = rust_triple.replace("-", "_")
        linker = f"CARGO_TARGET_{name.upper()}_LINKER"
        yield {
            linker: str(compiler),
            f"CC_{name}": str(compiler),
            f"AR_{name}": str(packer),
            "PATH": search_path(tools),
        }


def build_static(profile: str, tools: Path, machine: str) -> Path:
    """Here only the last crate is told: the others do not ask, and libc is chosen when all are linked. For another
    machine it is musl.
    """
    cargo = os.environ.get("CARGO", "cargo")
    flags = ["--locked", "--profile", profile, "-p", "jitney-cli", "--bin", "jitney"]
    built = DIST / f"jitney-{version()}-{machine}-linux-static"
    if machine == platform.machine():
        rustflags = f"{os.environ.get('RUSTFLAGS', '')} {STATIC_FLAGS}".strip()
        run(cargo, "rustc", *flags, "--", "-C", "target-feature=+crt-static", RUSTFLAGS=rustflags)
        shutil.copy(target() / profile / "jitney", built)
    else:
        triple = f"{machine}-unknown-linux-musl"
        with cross_compilers(tools, triple, f"{machine}-linux-musl") as variables:
            run(cargo, "build", *flags, "--target", triple, **variables)
        shutil.copy(target() / triple / profile / "jitney", built)
    if not is_static(built):
        sys.exit(f"{built} is not static")
    return built


def build_wheel(profile: str, tools: Path, machine: str) -> Path:
    """A wheel whose program asks for no symbol that is newer than GLIBC; maturin checks that."""
    for old in DIST.glob(f"jitney-*_{machine}.whl"):
        old.unlink()
    tag = f"manylinux_{GLIBC.replace('.', '_')}"
    flags = ["--locked", "--profile", profile, "--compatibility", tag, "--out", DIST]
    maturin, zig_triple = tools / "bin/maturin", f"{machine}-linux-gnu.{GLIBC}"
    if machine == platform.machine():
        with zig(tools, zig_triple) as (linker, _):
            run(maturin, "build", *flags, "--", "-C", f"linker={linker}", PATH=search_path(tools))
    else:
        triple = f"{machine}-unknown-linux-gnu"
        with cross_compilers(tools, triple, zig_triple) as variables:
            run(maturin, "build", *flags, "--target", triple, **variables)
    (wheel,) = DIST.glob(f"jitney-*_{machine}.whl")
    return wheel


def build_image(wheel: Path, machine: str) -> Path:
    """The image, in a file that docker and podman load. BUILDAH_FLAGS and IMAGE_ARGS change how it is built."""
    if not shutil.which("buildah"):
        sys.exit("buildah is not installed; `docker build .` builds the same image")
    buildah = ["buildah", *os.environ.get("BUILDAH_FLAGS", "").split()]
    name = version() if machine == platform.machine() else f"{version()}-{MACHINES[machine]}"
    program, image = f"localhost/jitney-program:{name}", f"localhost/jitney:{name}"
    bud = [*buildah, "bud", "--arch", MACHINES[machine]]
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as archive:
            (packed,) = [one for one in archive.namelist() if one.endswith(".data/scripts/jitney")]
            Path(scratch, "jitney").write_bytes(archive.read(packed))
        Path(scratch, "jitney").chmod(0o755)
        Path(scratch, "Dockerfile").write_text("FROM scratch\nCOPY jitney /jitney\n")
        run(*bud, "--quiet", "--tag", program, scratch)
    arguments = [f"PROGRAM={program}", f"VERSION={version()}", "PYTHON_PACKAGES="]
    arguments += os.environ.get("IMAGE_ARGS", "").split()
    flags = [word for argument in arguments for word in ("--build-arg", argument)]
    # Docker's format, since OCI's has no health check.
    run(*bud, "--isolation", "chroot", "--format", "docker", *flags, "--tag", image, ".")
    built = DIST / f"jitney-{version()}-{machine}-image.tar"
    built.unlink(missing_ok=True)
    run(*buildah, "push", "--quiet", image, f"docker-archive:{built}:{image}")
    return built


def write_parts(artefact: Path, machine: str) -> None:
    """The list of what an artefact is made of."""
    triple = f"{machine}-unknown-linux-gnu"
    sbom.write(artefact, version(), triple, is_image=artefact.name.endswith("-image.tar"))


def artefacts() -> list[Path]:
    """Everything in dist/ but the sums."""
    return sorted(path for path in DIST.glob("*") if path.is_file() and path.name != "SHA256SUMS")


def write_sums() -> None:
    """The sums of everything in dist/."""
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in artefacts()]
    (DIST / "SHA256SUMS").write_text("".join(sums))


def registry_size(image: Path) -> int:
    """The bytes that an image takes in a registry, where its layers are kept as gzip."""
    with tarfile.open(image) as whole:
        return sum(map(compressed_size, sbom.layers(whole)))


def compressed_size(layer: IO[bytes]) -> int:
    """The bytes of a layer as gzip."""
    packer = zlib.compressobj(level=6, wbits=31)
    size = sum(len(packer.compress(piece)) for piece in iter(lambda: layer.read(1 << 20), b""))
    return size + len(packer.flush())


def print_sizes() -> None:
    """The sizes of everything in dist/. The layers of an image's file are not compressed."""
    print()
    for path in artefacts():
        print(f"{path.stat().st_size / 1e6:9.1f} MB  {path.relative_to(ROOT)}")
        if path.name.endswith("-image.tar"):
            print(f"{registry_size(path) / 1e6:9.1f} MB  of it in a registry, compressed")


def main() -> None:
    """Builds the named kinds, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="static, wheel, image; all without any")
    parser.add_argument("--profile", default="release", help="the cargo profile")
    parser.add_argument(
        "--tools", type=Path, default=ROOT / ".venv/dist", help="an environment with maturin and ziglang"
    )
    parser.add_argument("--machine", choices=MACHINES, default=platform.machine(), help="which machine runs it")
    parser.add_argument("--sizes", action="store_true", help="only print the sizes of what is in dist/")
    given = parser.parse_args()
    if given.sizes:
        print_sizes()
        return
    tools, machine = given.tools.resolve(), given.machine
    kinds = given.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    if "image" in kinds and machine != platform.machine() and not Path(RUN_BY_QEMU + machine).exists():
        parser.error(f"this kernel runs no programs for {machine}, as building its image does: see tests/image-base")
    DIST.mkdir(exist_ok=True)
    if "static" in kinds:
        write_parts(build_static(given.profile, tools, machine), machine)
    if "wheel" in kinds:
        write_parts(build_wheel(given.profile, tools, machine), machine)
    if "image" in kinds:
        wheels = sorted(DIST.glob(f"jitney-*_{machine}.whl"))
        if not wheels:
            parser.error("the image has the wheel's program: build the wheel first")
        write_parts(build_image(wheels[-1], machine), machine)
    write_sums()
    print_sizes()


if __name__ == "__main__":
    main()
