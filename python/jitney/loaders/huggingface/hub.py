"""Models of the Hugging Face hub: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`. They are kept in the cache of
`huggingface_hub`, which other programs share. Its variables hold here too: `HF_HOME`, `HF_TOKEN`, `HF_ENDPOINT`, and
`HF_HUB_OFFLINE`, with which the hub is never asked. So does `HF_HUB_TOKEN`, which is the token's name in Hugging Face's
inference toolkit."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from jitney.call.errors import DefinitionError

SCHEME = "hf:"
OTHERS = ("*.msgpack", "*.h5", "*.ot", "*.gguf", "*.ckpt", "onnx/*", "openvino/*", "original/*")
"""Weights for programs that no loader is for."""
PICKLES = ("pytorch_model*", "*.pth")
"""Weights that are not needed where there are safetensors."""


def located(word: str) -> Path:
    """The path that a word of the command line means. A model of the hub is fetched first, as far as it is not here."""
    if not word.startswith(SCHEME):
        return Path(word)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise DefinitionError("models of the hub are fetched by huggingface_hub: pip install huggingface_hub")
    name, _, revision = word.removeprefix(SCHEME).partition("@")
    folder = _fetched(name, revision or None, [*OTHERS, *PICKLES])
    return folder if any(folder.rglob("*.safetensors")) else _fetched(name, revision or None, OTHERS)


def repository_name(path: Path) -> str | None:
    """The name of a model in the hub's cache, `.../models--ORG--NAME/snapshots/COMMIT`; None for any other path."""
    kind, *parts = path.parent.parent.name.split("--")
    return parts[-1] if path.parent.name == "snapshots" and kind == "models" and parts else None


def _fetched(name: str, revision: str | None, without: Sequence[str]) -> Path:
    """The folder of a model in the cache."""
    from huggingface_hub import constants, errors, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # Their letters would be lines of the log.
    token = None if os.environ.get("HF_TOKEN") else os.environ.get("HF_HUB_TOKEN") or None
    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=list(without), token=token))
    except errors.HFValidationError as error:
        raise DefinitionError(f"the hub has no such names: {error}") from None
    except errors.RevisionNotFoundError:
        raise DefinitionError(f"{name} has no revision {revision or 'main'!r} on the hub") from None
    except errors.RepositoryNotFoundError:
        raise DefinitionError(
            f"the hub has no model {name}, or shows it to some only: for a private or gated one set HF_TOKEN, or say "
            "`hf auth login`"
        ) from None
    except errors.LocalEntryNotFoundError as error:
        off = constants.HF_HUB_OFFLINE
        asked = error.__cause__ or error.__context__
        why = "HF_HUB_OFFLINE is set" if off else f"the hub cannot be reached ({_sentence(asked)})"
        raise DefinitionError(
            f"{why}, and the cache in {constants.HF_HUB_CACHE} does not have all of {name}: say `hf download {name} "
            "--local-dir DIR` where the hub can be reached, and serve DIR; or set HF_HOME to a cache that has it"
        ) from None
    except OSError as error:  # Those of HTTP and of the disk.
        raise DefinitionError(f"{name} cannot be fetched from the hub: {_sentence(error)}") from None


def _sentence(error: BaseException | None) -> str:
    lines = str(error or "").strip().splitlines()
    return lines[0] if lines else type(error).__name__
