"""More than can be served, and the way back: `python bench/run.py overload`.

The handler, batches and objective of `live`. Requests come whatever happens, Poisson, each given up by its client after
2 s; then at a rate that is easy. `jitney serve` with the adaptive policy, beside the simulator with the sleeps as they
were; and 5,000/s (1.8 times what can be served) on `jitney torchserve` with a window of 10 ms, with and without an
objective beside it.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from handlers import TIMED
from harness.archives import Store
from harness.server import FREE_ADDRESSES, Server
from live import BATCH, BINARY, OBJECTIVE_MS, PATH, SHARE, UNDER, difference, generate, served, simulate

CAPACITY = BATCH / (0.005 + 0.0002 * BATCH)
FLOOD = 5000
RATES = (0.5 * CAPACITY, 0.9 * CAPACITY, 1.5 * CAPACITY, FLOOD, 3 * CAPACITY)
SECONDS, AFTER_SECONDS, AFTER_RATE = max(2.0, 10 * SHARE), 3, 300
POOL = 4096
LIMITS = ["--pool", str(POOL), "--timeout", "2s", "--seed", "42"]


def overload() -> None:
    """Goodput under and above what can be served, and how soon all is well again."""
    print(
        f"\n## Overload: 5 ms + 0.2 ms per item, at most {BATCH}, {OBJECTIVE_MS} ms, one worker; capacity {CAPACITY:.0f} "
        f"requests/s; {SECONDS:.0f} s, then {AFTER_RATE}/s for {AFTER_SECONDS} s\n"
    )
    print(
        "| server | rate | good in all | good/s | simulator | of it | rejected | with reason and Retry-After | rejection p50 ms | answer p50 / p99 ms | expired | lost | good again after s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for rate in RATES:
        with tempfile.TemporaryDirectory(prefix="jitney-overload-") as folder, served(folder, "adaptive") as measured:
            before = measured.sleeps()
            flood, after = flooded(measured.server.url(PATH), rate)
            slept = difference(before, measured.sleeps())
        load = ["--rate", f"{rate:.0f}", "--requests", f"{int(rate * SECONDS)}", "--seed", "42"]
        should = simulate("adaptive", slept, load)["on_time_per_second"]
        row("serve, adaptive", rate, flood, after, f"{should:.0f} | **{flood['good_per_s'] / should:.1%}**")
    for name, query in (
        ("torchserve, window", {}),
        ("torchserve, window and objective", {"max_latency_ms": OBJECTIVE_MS}),
    ):
        with torchserve(query) as server:
            row(name, FLOOD, *flooded(server.url(PATH), FLOOD), " | ")


def flooded(url: str, rate: float) -> list[dict]:
    """What became of the flood, and of what came after."""
    phases = [f"{rate:.0f}x{SECONDS}s", f"{AFTER_RATE}x{AFTER_SECONDS}s"]
    return generate(url, "--phase", *phases, *LIMITS)["phases"]


def row(name: str, rate: float, flood: dict, after: dict, simulated: str) -> None:
    """Prints one row."""
    print(
        f"| {name} | {rate:.0f} | {flood['good']} | {flood['good_per_s']:.0f} | {simulated} | {flood['rejected']} "
        f"| {flood['explained']} | {flood['rejection_p50_ms']:.2f} "
        f"| {flood['answer_p50_ms']:.1f} / {flood['answer_p99_ms']:.1f} | {flood['expired']} | {flood['lost']} "
        f"| {after['last_bad_s']:.2f} |",
        flush=True,
    )


@contextmanager
def torchserve(query: dict[str, int]) -> Iterator[Server]:
    """`jitney torchserve` with a window, and what else the model is registered with."""
    with tempfile.TemporaryDirectory(prefix="jitney-overload-") as folder:
        store = Store(pathlib.Path(folder, "store"))
        slept = pathlib.Path(folder, "slept.csv")
        model = store.mar("bench", source=TIMED.replace("SLEPT_FILE", str(slept)))
        config = pathlib.Path(folder, "config.properties")
        config.write_text(FREE_ADDRESSES + "job_queue_size=2000\n")
        flags = ["--foreground", "--disable-token-auth", "--model-store", store.path, "--enable-model-api"]
        command = ["torchserve", "--start", *flags, "--ts-config", config]
        server = Server(BINARY, pathlib.Path(folder, "home"), command, store=store, under=UNDER).started()
        try:
            server.register(model, batch_size=BATCH, max_batch_delay=10, **query)
            yield server
        finally:
            server.end()
