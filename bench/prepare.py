"""Photos to tensors, and photos to names, against Pillow, numpy and ONNX Runtime in Python, by turns in one run.

    cargo build --release -p jitney-cli && cargo build --release -p jitney-onnx --example prepare
    .venv/torch/bin/python models/build/imagenet_onnx.py models/out
    python bench/prepare.py --photos FOLDER [--model models/out/imagenet-onnx/imagenet.onnx]

FOLDER holds JPEGs. The first table is preparation alone on one thread, in images per second of processor time:
decoded, resized to 256, cropped to 224, normalised. Each side also has to give the same numbers. The second table,
with `--model`, is the server with JPEGs over HTTP against a loop of Pillow and ONNX Runtime (one thread, batches of 8):
images per second of processor time and of the clock, and the same names.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image

from server import BINARY, tree
from server import cpu as seconds_of

EXAMPLE = os.environ.get("JITNEY_PREPARE", "target/release/examples/prepare")
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
BATCH = 8
PORTS = ("port", "management-port", "metrics-port", "grpc-port", "grpc-management-port")


def main() -> None:
    """Prints the tables; fails where the two sides disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    photos = sorted([*options.photos.glob("*.jpg"), *options.photos.glob("*.jpeg")])
    bodies = [photo.read_bytes() for photo in photos]
    print(f"{len(photos)} photos, {sum(map(len, bodies)) // len(bodies)} bytes on average, {options.rounds} rounds\n")
    alone(photos, bodies, options)
    if options.model:
        whole(bodies, options)


def prepared(body: bytes) -> np.ndarray:
    """What torchvision's usual transform makes of a photo."""
    image = Image.open(io.BytesIO(body)).convert("RGB")
    width, height = image.size
    size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2.0) for side in size)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32) / np.float32(255)
    return np.ascontiguousarray(((pixels - MEAN) / STD).transpose(2, 0, 1))


def alone(photos: list[pathlib.Path], bodies: list[bytes], options: argparse.Namespace) -> None:
    """Preparation alone."""
    dumped = subprocess.run([EXAMPLE, "dump", *photos], capture_output=True, check=True).stdout
    ours = np.frombuffer(dumped, np.float32).reshape(-1, 3, 224, 224)
    worst = max(float(np.abs(one - prepared(body)).max()) for one, body in zip(ours, bodies, strict=True))
    rates: dict[str, list[float]] = {"Pillow and numpy": [], "jitney": []}
    for _ in range(options.rounds):
        rates["Pillow and numpy"].append(python_rate(bodies, options.seconds))
        told = subprocess.run([EXAMPLE, str(options.seconds), *photos], capture_output=True, check=True).stdout
        rates["jitney"].append(json.loads(told)["images"] / json.loads(told)["cpu_seconds"])
    print("| preparation alone | images per CPU-second | ratio (median, least) |\n|---|---|---|")
    for name, values in rates.items():
        ratios = [one / other for one, other in zip(values, rates["Pillow and numpy"], strict=True)]
        print(f"| {name} | {statistics.median(values):.1f} | {statistics.median(ratios):.2f}, {min(ratios):.2f} |")
    print(f"\nLargest difference of a number: {worst:.2g}\n")
    assert worst < 1e-2, "the tensors differ"


def python_rate(bodies: list[bytes], seconds: float) -> float:
    """Images per second of processor time in this process."""
    start, images = time.process_time(), 0
    while time.process_time() - start < seconds:
        for body in bodies:
            prepared(body)
        images += len(bodies)
    return images / (time.process_time() - start)


def whole(bodies: list[bytes], options: argparse.Namespace) -> None:
    """Photos to names."""
    import onnxruntime

    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = threads.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(options.model, threads, providers=["CPUExecutionProvider"])
    labels = options.model.with_name("labels.txt").read_text().splitlines()
    rows: dict[str, list[tuple[float, float]]] = {"Pillow and ONNX Runtime in Python": [], "jitney": []}
    with served(options.model) as (server, port):
        names = [ask(port, body) for body in bodies]
        for _ in range(options.rounds):
            clock, cpu, images = time.monotonic(), time.process_time(), 0
            expected: list[str] = []
            while time.monotonic() - clock < options.seconds or len(expected) < len(bodies):
                batch = [bodies[(images + place) % len(bodies)] for place in range(BATCH)]
                (scores,) = session.run(None, {"images": np.stack([prepared(body) for body in batch])})
                expected += [labels[place] for place in scores.argmax(1)]
                images += BATCH
            elapsed = time.monotonic() - clock, time.process_time() - cpu
            rows["Pillow and ONNX Runtime in Python"].append((images / elapsed[0], images / elapsed[1]))
            assert names == expected[: len(bodies)], "the names differ"
            rows["jitney"].append(load(server, port, bodies, options))
    print("| photos to names | images per second | per CPU-second | ratios |\n|---|---|---|---|")
    base = rows["Pillow and ONNX Runtime in Python"]
    for name, values in rows.items():
        clock, cpu = (statistics.median(value[place] for value in values) for place in (0, 1))
        by = [
            statistics.median(one[place] / two[place] for one, two in zip(values, base, strict=True))
            for place in (0, 1)
        ]
        print(f"| {name} | {clock:.1f} | {cpu:.1f} | {by[0]:.2f}, {by[1]:.2f} |")


@contextlib.contextmanager
def served(model: pathlib.Path) -> Iterator[tuple[int, int]]:
    """The server's process and port."""
    with tempfile.TemporaryFile("w+") as said:
        flags = [word for name in PORTS for word in (f"--{name}", "0")]
        flags += ["--batch-size", str(BATCH), "--workers", "1"]
        process = subprocess.Popen([BINARY, "serve", model, *flags], stdout=said, stderr=sys.stderr)
        try:
            while True:
                said.seek(0)
                found = re.search(r"http://[^:\s]+:(\d+)", text := said.read())
                if found and "Try:" in text:
                    break
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
            yield process.pid, int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def ask(port: int, body: bytes) -> str:
    """The likeliest name."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/predictions/imagenet", body, {"Content-Type": "image/jpeg"})
    answer = json.loads(connection.getresponse().read())
    return max(answer, key=answer.__getitem__)


def load(server: int, port: int, bodies: list[bytes], options: argparse.Namespace) -> tuple[float, float]:
    """Images per second of the clock and of the server's processor time, from as many connections as asked for."""
    counts = [0] * options.connections
    cpu, clock = tree_seconds(server), time.monotonic()
    end = clock + options.seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.monotonic() < end:
            body = bodies[(counts[number] * options.connections + number) % len(bodies)]
            connection.request("POST", "/predictions/imagenet", body, {"Content-Type": "image/jpeg"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(options.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - clock), sum(counts) / (tree_seconds(server) - cpu)


def tree_seconds(pid: int) -> float:
    """Processor time of a process and its children that live."""
    return sum(seconds_of(one) for one in tree(pid))


if __name__ == "__main__":
    main()
