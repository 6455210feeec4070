"""Models that are known without being loaded: `python bench/run.py known thousand`.

`known` is what 1,000 of them cost a server that nobody asks for anything. `thousand` asks for 700 ONNX files and 300
Python archives by Zipf's law, within a budget for some twenty of them, and counts what became of every request.
BENCH_SHARE=0.1 makes a try-out with fewer models, for a debug binary.
"""

from __future__ import annotations

import os
import pathlib
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import requests

from footprint import manage, pack, weigh
from handlers import NOOP
from harness import onnx, processes
from harness.archives import Store
from server import Server, tree

SHARE = float(os.environ.get("BENCH_SHARE", "1"))
MODELS = max(10, int(1000 * SHARE))
IDLE_SECONDS = max(5.0, 60 * SHARE)
SECONDS = max(20.0, 300 * SHARE)
MEMORY_MIB = int(os.environ.get("BENCH_MEMORY_MIB", "512"))
RATE = float(os.environ.get("BENCH_RATE", "10"))
ZIPF = 1.1
GUARD = b"guard-groups"
PATIENCE = 120.0
"""Seconds after which a client counts its request as lost."""

HANDLER = """
def handle(data, context):
    return [context.model_name for _ in data or []]
"""


def known() -> None:
    """What models cost that nobody has asked for."""
    print(
        f"\n## Known: {MODELS} models that nobody asks for; the server process itself, idle for {IDLE_SECONDS:.0f} s\n"
    )
    print("| models | RSS MiB | % of a core |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="jitney-bench-store-") as store:
        for number in range(MODELS):
            pack(pathlib.Path(store, f"m{number}.mar"))
        with Server(NOOP, "--model-store", store, "--load", "on_demand") as server:
            idle_row(server, 1)
            for number in range(1, MODELS):
                manage(server, "POST", f"models?url=m{number}.mar&model_name=m{number}&load=on_demand")
            idle_row(server, MODELS)


def idle_row(server: Server, models: int) -> None:
    before, _ = server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    after, _ = server.cpu_seconds()
    print(f"| {models} | {weigh(server)[0]:.1f} | {(after - before) / IDLE_SECONDS * 100:.2f} |")


def thousand() -> None:
    """Real models, more than fit: what became of every request, and the memory of all workers."""
    print(
        f"\n## On demand: {MODELS * 7 // 10} ONNX files and {MODELS * 3 // 10} Python archives, {MEMORY_MIB} MiB for all, "
        f"Zipf {ZIPF}, {RATE:g} requests/s offered for {SECONDS:.0f} s\n"
    )
    with tempfile.TemporaryDirectory(prefix="jitney-bench-models-") as folder:
        store = Store(pathlib.Path(folder, "models"))
        names = [small_model(store, number) for number in range(MODELS)]
        flags = ["--load", "on_demand", "--memory", f"{MEMORY_MIB}MiB", "--startup-wait", "60s"]
        with Server(store.path, *flags, named=False) as server, watched(server) as samples:
            outcomes = Counter(asked_in_turn(server, names))
        missed = sum(count for outcome, count in outcomes.items() if outcome.startswith("neither"))
        print("| outcome | requests |\n|---|---|")
        for outcome, count in sorted(outcomes.items()):
            print(f"| {outcome} | {count} |")
        above = sum(held > MEMORY_MIB << 20 for held in samples)
        print(
            f"\nNeither answered nor rejected with a reason: {missed}. Samples of memory: {len(samples)}, above the budget: "
            f"{above}, the most {max(samples) / 2**20:.0f} MiB."
        )


def small_model(store: Store, number: int) -> str:
    """Three of ten are archives. An ONNX model multiplies with its number, so that an answer tells whose it is."""
    if number % 10 < 3:
        store.mar(f"p{number}", source=HANDLER)
        return f"p{number}"
    weights = onnx.tensor(onnx.FLOAT, [1, 1], struct.pack("<f", number), "w")
    given, made = onnx.value("x", onnx.FLOAT, ["n", 1]), onnx.value("y", onnx.FLOAT, ["n", 1])
    step = onnx.node("MatMul", ["x", "w"], "y")
    onnx.write(store.path / f"o{number}.onnx", [step], [given], [made], [weights])
    return f"o{number}"


def asked_in_turn(server: Server, names: list[str]) -> Iterator[str]:
    """Requests come by chance, whatever becomes of those before them."""
    dice = random.Random(1)
    dice.shuffle(names)
    weights = [1 / rank**ZIPF for rank in range(1, len(names) + 1)]
    began, due, sent = time.monotonic(), 0.0, []
    with ThreadPoolExecutor(2000) as clients:
        while (due := due + dice.expovariate(RATE)) < SECONDS:
            time.sleep(max(0.0, began + due - time.monotonic()))
            [name] = dice.choices(names, weights)
            sent.append(clients.submit(outcome_of, server.addresses["inference"], name))
        for one in sent:
            yield one.result()


def outcome_of(url: str, name: str) -> str:
    try:
        if name.startswith("p"):
            answer = requests.post(f"{url}/predictions/{name}", b"x", timeout=PATIENCE)
            right = answer.text == name
        else:
            tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
            answer = requests.post(f"{url}/v2/models/{name}/infer", json={"inputs": [tensor]}, timeout=PATIENCE)
            right = answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [float(name[1:])]
    except (requests.RequestException, ValueError, KeyError) as error:
        return f"neither: {type(error).__name__}"
    if answer.status_code == 200:
        return "answered" if right else "neither: a wrong answer"
    reasoned = answer.status_code in (429, 503, 504, 507) and len(answer.text) > 20
    return f"rejected with {answer.status_code}" if reasoned else f"neither: {answer.status_code}"


def watched(server: Server) -> AbstractContextManager[list[int]]:
    """The memory of all workers: all processes below the server but the one that ends the others with it."""
    return processes.memory_of(
        lambda: [pid for pid in tree(server.process.pid)[1:] if GUARD not in processes.command(pid)]
    )
