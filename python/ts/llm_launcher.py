"""Serves a language model by its name at Hugging Face's hub: `python -m ts.llm_launcher --model_id NAME`.

It writes the archive for `vllm_handler` that TorchServe's launcher writes, and runs the server until one of both ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jitney.gpu.device import find_torch
from model_archiver.model_archiver_config import ModelArchiverConfig
from model_archiver.model_packaging import generate_model_archive
from ts.launcher import start, stop

ENGINES = ("vllm", "trt_llm")


def get_model_config(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of the model, as model-config.yaml has them."""
    torch = find_torch()
    gpus = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 1
    download_dir = getattr(args, "vllm_engine.download_dir")
    engine = {
        "max_num_seqs": getattr(args, "vllm_engine.max_num_seqs"),
        "max_model_len": getattr(args, "vllm_engine.max_model_len"),
        "download_dir": str(Path(download_dir).resolve()) if download_dir else None,
        "tensor_parallel_size": gpus,
    }
    return {
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": 1,
        "maxBatchDelay": 100,
        "responseTimeout": 1200,
        "startupTimeout": args.startup_timeout,
        "deviceType": "gpu",
        "asyncCommunication": True,
        "parallelLevel": gpus,
        "handler": {"model_path": args.model_id, "vllm_engine_config": engine},
    }


@contextlib.contextmanager
def create_mar_file(args: argparse.Namespace) -> Iterator[str]:
    """The model's folder in the store; one that was there before is taken, and stays."""
    folder = Path(args.model_store, args.model_name)
    there = folder.exists()
    if not there:
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch, "model-config.yaml")
            config.write_text(json.dumps(get_model_config(args)))  # JSON is YAML.
            generate_model_archive(
                ModelArchiverConfig(
                    model_name=args.model_name,
                    handler=f"{args.engine}_handler",
                    version="1.0",
                    export_path=args.model_store,
                    config_file=str(config),
                    archive_format="no-archive",
                )
            )
    try:
        yield str(folder)
    finally:
        if not there:
            shutil.rmtree(folder)


def main(args: argparse.Namespace) -> None:
    """Serves until the server ends, or Ctrl-C."""
    Path(args.model_store).mkdir(parents=True, exist_ok=True)
    with create_mar_file(args):
        try:
            lines = start(args.model_store, None, True, None, args.disable_token_auth, args.model_name)
            while lines.get() is not None:
                pass
        except KeyboardInterrupt:
            pass
        finally:
            stop(wait=False)


def make_parser() -> argparse.ArgumentParser:
    """TorchServe's options."""
    parser = argparse.ArgumentParser(prog="python -m ts.llm_launcher", description="Serves a language model by vLLM.")
    parser.add_argument("--model_name", default="model", help="Name of the model")
    parser.add_argument("--model_store", default="model_store", help="Folder for its archive")
    parser.add_argument(
        "--model_id", default="meta-llama/Meta-Llama-3.1-8B-Instruct", help="Name at the hub, or folder"
    )
    parser.add_argument("--disable_token_auth", action="store_true", help="Serve without tokens")
    parser.add_argument("--vllm_engine.max_num_seqs", type=int, default=256, help="Most texts at a time")
    parser.add_argument("--vllm_engine.max_model_len", type=int, help="Most tokens of a text")
    parser.add_argument("--vllm_engine.download_dir", help="Folder for what is fetched from the hub")
    parser.add_argument("--startup_timeout", type=int, default=1200, help="Seconds that loading may take")
    parser.add_argument("--engine", choices=ENGINES, default="vllm", help="vllm; there is no trt_llm here")
    return parser


if __name__ == "__main__":
    main(make_parser().parse_args())
