"""Compares our JPEG decoder with zune-jpeg and jpeg-decoder, and all of them with Pillow, on photos.

    python bench/jpeg/run.py [--seconds 2] [PHOTO ...]

Needs Pillow, and scikit-learn for its two photos where none are named. Every photo is written anew by Pillow in the ways
that files in the wild have: chroma halved both ways, across, or not at all; gray; pass by pass; with restarts.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import tempfile

from PIL import Image

HERE = pathlib.Path(__file__).parent
WAYS = {
    "4:2:0": {"quality": 85, "subsampling": "4:2:0"},
    "4:2:2": {"quality": 85, "subsampling": "4:2:2"},
    "4:4:4": {"quality": 95, "subsampling": "4:4:4"},
    "gray": {"quality": 85},
    "progressive": {"quality": 85, "subsampling": "4:2:0", "progressive": True},
    "restarts": {"quality": 85, "subsampling": "4:2:0", "restart_marker_rows": 1},
}


def photos() -> list[str]:
    """The two that come with scikit-learn."""
    from sklearn import datasets

    folder = pathlib.Path(datasets.__file__).parent / "images"
    return [str(file) for file in sorted(folder.glob("*.jpg"))]


def written(photo: pathlib.Path, way: str, folder: pathlib.Path) -> str:
    """An argument for the program: the name, the file, and what Pillow makes of it."""
    image = Image.open(photo).convert("L" if way == "gray" else "RGB")
    name = f"{photo.stem}, {way}"
    file = folder / f"{photo.stem}-{way.replace(':', '')}.jpg"
    image.save(file, **WAYS[way])
    raw = file.with_suffix(".rgb")
    raw.write_bytes(Image.open(file).convert("RGB").tobytes())
    return f"{name}={file}={raw}"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("photos", nargs="*")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(photo) for photo in flags.photos or photos()]
        made = [written(file, way, pathlib.Path(folder)) for file in files for way in WAYS]
        program = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(HERE / "Cargo.toml"), "--"]
        # The server compiles the decoder for the instructions of the machine too; zune-jpeg chooses at run time.
        env = {**os.environ, "RUSTFLAGS": "-C target-cpu=x86-64-v3"}
        subprocess.run([*program, str(flags.seconds), *made], check=True, env=env)


if __name__ == "__main__":
    main()
