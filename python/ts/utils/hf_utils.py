"""Fetches models from Hugging Face's hub, by TorchServe's name for it."""

from __future__ import annotations

WANTED = ("*.json", "*.pt", "*.bin", "*.txt", "*.model", "*.pth", "*.safetensors")
"""Weights that torch loads, and what belongs to them."""


def download_model(
    model_id: str = "meta-llama/Meta-Llama-3.1-8B-Instruct",
    revision: str = "main",
    model_path: str = ".cache",
    use_auth_token: bool | str = True,
) -> str:
    """The folder of a model, fetched unless it is there; with the token of `huggingface-cli login` if there is one."""
    try:
        from huggingface_hub import get_token, snapshot_download
    except ImportError as error:
        raise ImportError("fetching models needs huggingface_hub: pip install huggingface_hub") from error
    token = (get_token() or False) if use_auth_token is True else use_auth_token
    found: str = snapshot_download(
        repo_id=model_id, revision=revision, allow_patterns=list(WANTED), cache_dir=model_path, token=token
    )
    return found
