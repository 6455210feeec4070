"""Images through the stock handler `image_classifier` against a bare Python loop over the same images, in the same run.

    JITNEY_BIN=target/release/jitney .venv-torch/bin/python bench/images.py                     # ResNet-18 on the CPU
    ... bench/images.py --net resnet152 --device cuda:0 --precision float16 --batch 32 --connections 128

The workers use the Python that runs this script; it needs torch and torchvision. Weights are random: only the
speed means anything. `serial` is the same server with `overlap: 1, preprocess_threads: 1`.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torchvision
from PIL import Image

BINARY = os.environ.get("JITNEY_BIN", "target/release/jitney")
PORTS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")
KINDS = 16


def main() -> None:
    """Prints one table."""
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="jitney-bench-") as folder:
        net = build(options.net)
        script = pathlib.Path(folder, "net.pt")
        torch.jit.trace(net, torch.zeros(2, 3, 224, 224)).save(str(script))
        bodies = photos(options.bytes)
        print(
            f"torch {torch.__version__}, {os.cpu_count()} CPUs, {options.net}, {options.device}, {options.precision}, "
            f"{sum(map(len, bodies)) // len(bodies)} byte JPEGs, batch {options.batch}, "
            f"{options.connections} connections, medians of {options.rounds} x {options.seconds} s\n"
        )
        print("| what | images/s | relative to the bare loop |")
        print("|---|---|---|")
        bare = say(
            "bare loop: decode and model, one after another",
            [bare_loop(script, bodies, options) for _ in range(options.rounds)],
        )
        say("model alone", [model_alone(script, options) for _ in range(options.rounds)], bare)
        say("server, serial handler", served(script, bodies, options, {"overlap": 1, "preprocess_threads": 1}), bare)
        say("server, threads only", served(script, bodies, options, {"decode_processes": 0}), bare)
        helpers = {} if options.decode_processes is None else {"decode_processes": options.decode_processes}
        say("server", served(script, bodies, options, helpers), bare)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="resnet18", help="a classifier of torchvision")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument(
        "--delay", type=int, default=None, help="max_batch_delay in ms; without it the policy is opportunistic"
    )
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--bytes", type=int, default=50_000, help="size of the JPEGs, about")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overlap", type=int, default=None)
    parser.add_argument(
        "--decode-processes",
        type=int,
        default=None,
        help="decoding helpers; 0 is off, the default follows the processors",
    )
    return parser.parse_args()


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None).eval()


def photos(size: int) -> list[bytes]:
    """Pictures with detail enough to have the size asked for."""
    generator = torch.Generator().manual_seed(1)
    return [photo(size, torch.rand(3, 48, 64, generator=generator)) for _ in range(KINDS)]


def photo(size: int, coarse: torch.Tensor) -> bytes:
    smooth = torch.nn.functional.interpolate(coarse[None], size=(480, 640), mode="bicubic")[0].clamp(0, 1)
    grain = torch.rand(3, 480, 640, generator=torch.Generator().manual_seed(2)) * 0.12
    pixels = ((smooth * 0.88 + grain) * 255).byte().permute(1, 2, 0).contiguous().numpy()
    for quality in range(95, 5, -5):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= size:
            break
    return buffer.getvalue()


def say(what: str, rates: list[float], bare: float | None = None) -> float:
    rate = statistics.median(rates)
    print(f"| {what} | {rate:.1f} ({min(rates):.1f} to {max(rates):.1f}) | {rate / (bare or rate):.2f} |", flush=True)
    return rate


def loaded(script: pathlib.Path, options: argparse.Namespace) -> torch.nn.Module:
    net = torch.jit.load(str(script), map_location=options.device).to(getattr(torch, options.precision)).eval()
    return net.to(memory_format=torch.channels_last) if options.channels_last else net


def ready(batch: torch.Tensor, options: argparse.Namespace) -> torch.Tensor:
    batch = batch.to(options.device).to(getattr(torch, options.precision))
    return batch.contiguous(memory_format=torch.channels_last) if options.channels_last else batch


def bare_loop(script: pathlib.Path, bodies: list[bytes], options: argparse.Namespace) -> float:
    """What a Python program without a server would do."""
    steps = torchvision.transforms
    prepare = steps.Compose(
        [
            steps.Resize(256),
            steps.CenterCrop(224),
            steps.ToTensor(),
            steps.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    net = loaded(script, options)

    def step(number: int) -> None:
        chosen = [bodies[(number * options.batch + place) % len(bodies)] for place in range(options.batch)]
        batch = torch.stack([prepare(Image.open(io.BytesIO(body))) for body in chosen])
        torch.topk(torch.softmax(net(ready(batch, options)).float(), 1), 5)[0].tolist()

    return looped(step, options)


def model_alone(script: pathlib.Path, options: argparse.Namespace) -> float:
    net, batch = loaded(script, options), ready(torch.zeros(options.batch, 3, 224, 224), options)
    return looped(lambda _: net(batch).sum().item(), options)


def looped(step: object, options: argparse.Namespace) -> float:
    with torch.inference_mode():
        for number in range(3):
            step(number)
        started, number = time.perf_counter(), 0
        while time.perf_counter() - started < options.seconds:
            step(number)
            number += 1
        return number * options.batch / (time.perf_counter() - started)


def served(script: pathlib.Path, bodies: list[bytes], options: argparse.Namespace, wishes: dict) -> list[float]:
    """Closed-loop clients against the real binary."""
    if options.overlap and "overlap" not in wishes:
        wishes = {"overlap": options.overlap, **wishes}
    wishes = {
        "device": options.device,
        "precision": options.precision,
        "channels_last": options.channels_last,
        **wishes,
    }
    with tempfile.TemporaryDirectory(prefix="jitney-bench-") as folder:
        model = pathlib.Path(folder, "bench")
        (model / "MAR-INF").mkdir(parents=True)
        shutil.copy(script, model / "net.pt")
        (model / "model-config.yaml").write_text(json.dumps({"jitney": wishes}))
        about = {"modelName": "bench", "modelVersion": "1.0", "handler": "image_classifier", "serializedFile": "net.pt"}
        (model / "MAR-INF" / "MANIFEST.json").write_text(
            json.dumps({"runtime": "python", "model": {**about, "configFile": "model-config.yaml"}})
        )
        policy = ["--policy", "opportunistic"] if options.delay is None else ["--max-batch-delay", str(options.delay)]
        flags = ["--batch-size", str(options.batch), "--queue", "1000", *policy]
        ports = [word for name in PORTS for word in (f"--{name}", "0")]
        env = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        with open(pathlib.Path(folder, "log"), "w+") as log:
            process = subprocess.Popen(
                [BINARY, "serve", f"bench={model}", *ports, *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env,
            )
            try:
                port = inference_port(process, log)
                wait_until_ready(port, process, log)
                load(port, bodies, options, 3)
                return [load(port, bodies, options, options.seconds) for _ in range(options.rounds)]
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


def inference_port(process: subprocess.Popen, log: io.TextIOBase) -> int:
    found = None
    for line in process.stdout:
        found = re.search(r"^Inference\s+http://[\d.]+:(\d+)", line) or found
        if "curl " in line and found:
            return int(found[1])
    log.seek(0)
    raise SystemExit("the server did not start:\n" + log.read())


def wait_until_ready(port: int, process: subprocess.Popen, log: io.TextIOBase) -> None:
    """The worker has to load torch and the model first."""
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/ping")
        healthy = connection.getresponse().status == 200
        log.seek(0)
        said = log.read()
        if healthy and "worker is ready" in said:
            return
        if "worker did not start" in said or process.poll() is not None:
            break
        time.sleep(0.2)
    raise SystemExit("the worker did not start:\n" + said)


def load(port: int, bodies: list[bytes], options: argparse.Namespace, seconds: float) -> float:
    """Answers per second; any answer but 200 ends the measurement."""
    counts, wrong = [0] * options.connections, []
    started = time.perf_counter()
    end = started + seconds

    def client(place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        number = place
        while time.perf_counter() < end and not wrong:
            connection.request("POST", "/predictions/bench", bodies[number % len(bodies)])
            reply = connection.getresponse()
            text = reply.read()
            if reply.status != 200:
                wrong.append((reply.status, text))
            counts[place] += 1
            number += 1

    clients = [threading.Thread(target=client, args=(place,)) for place in range(options.connections)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    if wrong:
        raise SystemExit(f"a request was answered with {wrong[0]}")
    return sum(counts) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
