"""MLCommons' LoadGen against a server: run as a program in an environment that has it, called by `measure` from outside.

LoadGen decides when a sample is due and writes down when it was answered; here is only what sends it. The program reads
one JSON object from standard input and prints one.
"""

from __future__ import annotations

import array
import bisect
import dataclasses
import http.client
import json
import pathlib
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

if __package__:
    from .install import make
    from .servers import Ask
    from .workloads import LOADGEN_MS, Load

REQUIREMENT = "mlcommons-loadgen==6.0.17"
CONNECTIONS = 64
SHARES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""The rates that are tried, of what the server does at most."""
PATIENCE_S = 900.0
SUMMARY = {
    "rate": r"(?:Samples per second|Completed samples per second)\s*: ([\d.]+)",
    "p50_ms": r"50\.00 percentile latency \(ns\)\s*: (\d+)",
    "p99_ms": r"99\.00 percentile latency \(ns\)\s*: (\d+)",
}


def drive(load: Load, ask: Ask, port: int, folder: pathlib.Path, seconds: float) -> dict[str, float]:
    """Runs a scenario in a process of its own; what LoadGen says of it."""
    python = make("loadgen", sys.executable, (REQUIREMENT,))
    (folder / "body").write_bytes(ask.body)
    wanted = {
        "scenario": load.scenario,
        "seconds": seconds,
        "limit_ms": LOADGEN_MS,
        "port": port,
        "folder": str(folder),
        **{name: value for name, value in dataclasses.asdict(ask).items() if name != "body"},
    }
    command = [str(python), str(pathlib.Path(__file__).resolve())]
    told = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, timeout=PATIENCE_S)
    if told.returncode:
        raise RuntimeError(f"LoadGen failed: {told.stderr.strip()[-300:]}")
    return json.loads(told.stdout.splitlines()[-1])


class Client:
    """Sends samples over its connections, each of which has a thread."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.body = (pathlib.Path(wanted["folder"]) / "body").read_bytes()
        self.waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.sent = self.wrong = 0
        self.lock = threading.Lock()
        for _ in range(CONNECTIONS):
            threading.Thread(target=self.serve, daemon=True).start()

    def issue(self, samples: list[Any]) -> None:
        """Takes the samples that are due."""
        for sample in samples:
            self.waiting.put(sample.id)

    def serve(self) -> None:
        """One connection."""
        import mlperf_loadgen

        connection = http.client.HTTPConnection("127.0.0.1", self.wanted["port"], timeout=120)
        right = re.compile(rb"\b%s\b" % re.escape(self.wanted["answer"].encode()))
        while True:
            sample = self.waiting.get()
            answer = self.ask(connection)
            with self.lock:
                self.sent += 1
                self.wrong += not right.search(answer)
            kept = array.array("B", answer)
            mlperf_loadgen.QuerySamplesComplete(
                [mlperf_loadgen.QuerySampleResponse(sample, kept.buffer_info()[0], len(answer))]
            )

    def ask(self, connection: http.client.HTTPConnection) -> bytes:
        """The answer of one request, empty if there was none."""
        try:
            connection.request("POST", self.wanted["path"], self.body, self.wanted["headers"])
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return b""
        return body if reply.status == 200 else b""

    def play(self, scenario: str, seconds: float, rate: float) -> dict[str, float]:
        """One run of LoadGen; `valid` is its own word."""
        import mlperf_loadgen as loadgen

        settings = loadgen.TestSettings()
        settings.mode = loadgen.TestMode.PerformanceOnly
        settings.scenario = getattr(loadgen.TestScenario, scenario)
        settings.min_duration_ms = int(seconds * 1000)
        settings.offline_expected_qps = settings.server_target_qps = rate
        settings.server_target_latency_ns = self.wanted["limit_ms"] * 1_000_000
        logs = loadgen.LogSettings()
        logs.log_output.outdir = self.wanted["folder"]
        logs.enable_trace = False
        wrong = self.wrong
        under_test = loadgen.ConstructSUT(self.issue, lambda: None)
        library = loadgen.ConstructQSL(1, 1, lambda _: None, lambda _: None)
        loadgen.StartTestWithLogSettings(under_test, library, settings, logs)
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(under_test)
        summary = (pathlib.Path(self.wanted["folder"]) / "mlperf_log_summary.txt").read_text()
        found = {name: re.search(pattern, summary) for name, pattern in SUMMARY.items()}
        figures = {name: float(at[1]) for name, at in found.items() if at}
        for name in ("p50_ms", "p99_ms"):
            figures[name] /= 1e6
        figures["valid"] = float("Result is : VALID" in summary and wrong == self.wrong)
        return figures


def run(wanted: dict[str, Any]) -> dict[str, float]:
    """What a scenario gives."""
    client = Client(wanted)
    seconds = wanted["seconds"]
    guess = client.play("Offline", 1.0, 20.0)["rate"]
    if wanted["scenario"] == "Offline":
        figures = client.play("Offline", seconds, guess)
    else:
        most = client.play("Offline", min(seconds, 5.0), guess)["rate"]
        figures = highest_valid(lambda share: client.play("Server", seconds, most * share))
        if not figures:
            raise SystemExit(f"no rate down to {SHARES[-1]:.0%} of {most:.0f}/s was valid")
    return {**figures, "requests": client.sent, "not_ok": client.wrong}


def highest_valid(play: Callable[[float], dict[str, float]]) -> dict[str, float]:
    """The figures of the highest rate that is valid, found by halving, since each run takes a minute; none if none is."""
    figures: dict[float, dict[str, float]] = {}

    def valid(share: float) -> float:
        figures[share] = play(share)
        return figures[share]["valid"]

    at = bisect.bisect_left(SHARES, 1.0, key=valid)
    return figures[SHARES[at]] if at < len(SHARES) else {}


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin))))
