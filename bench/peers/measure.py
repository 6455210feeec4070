"""Sends a load and says what came back: wrk for clients that wait, h2load for gRPC, `jitney bench` for open loops and as another
generator for clients that wait."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import subprocess
import time
from typing import Any

from . import loadgen
from .processes import Running
from .servers import Ask
from .servers.jitney import BINARY
from .workloads import OBJECTIVE_MS, POOL, TIMEOUT_S, Load

GENERATOR = pathlib.Path(os.environ.get("JITNEY_BENCH_BIN", BINARY))
"""The program whose `bench` makes loads: the same for all servers."""
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
RECOVERY_S = 3
GRPC_CONNECTIONS = 8
GRPC_FRAME = 7
"""Bytes around a short prediction: the frame's head, the field's tag and length."""
Figures = dict[str, float]


def once(ask: Ask, port: int, timeout: float = 60.0) -> None:
    """One request; raises unless it is answered as it should be."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", ask.path, ask.body, ask.headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200 or not re.search(rf"\b{ask.answer}\b", body.decode(errors="replace")):
        raise RuntimeError(f"{answer.status} instead of {ask.answer}: {body[:300]!r}")


def once_grpc(ask: Ask, port: int, folder: pathlib.Path) -> None:
    """One gRPC call by h2load; the answer must have as many bytes as the right one: an error has none."""
    out = h2load(ask, port, folder, ["-n1", "-c1", "-m1"])
    data = re.search(r"\((\d+)\) data", out)
    if "1 succeeded" not in out or not data or int(data[1]) != GRPC_FRAME + len(ask.answer):
        raise RuntimeError(f"the gRPC call failed: {data[0] if data else out[-200:]}")


def wait_until_ready(ask: Ask, port: int, running: Running, grpc_folder: pathlib.Path | None, patience: float) -> float:
    """Asks until an answer is right; the seconds that took."""
    started = time.monotonic()
    while True:
        try:
            if grpc_folder:
                once_grpc(ask, port, grpc_folder)
            else:
                once(ask, port)
            return time.monotonic() - started
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            if running.ended():
                raise RuntimeError(f"it ended while it started:\n{running.tail()}") from error
            if time.monotonic() - started > patience:
                raise RuntimeError(f"not ready after {patience:.0f} s: {error}\n{running.tail()}") from error
            time.sleep(0.05)


def measure(load: Load, ask: Ask, port: int, running: Running, folder: pathlib.Path, seconds: float) -> Figures:
    """One load on a server that is ready and warm, with the CPU time of its processes."""
    before = running.cost()
    if load.scenario:
        figures = loadgen.drive(load, ask, port, folder, seconds)
    elif load.grpc:
        figures = grpc(load, ask, port, folder, seconds)
    elif load.by_bench:
        figures = bench(load, ask, port, folder, seconds)
    else:
        figures = closed(load, ask, port, folder, seconds)
    after = running.cost()
    answered = figures["requests"] - figures["not_ok"]
    if answered < 1:  # Nothing can be said of the answers of a server that gave none.
        return {name: value for name, value in figures.items() if name not in ("p50_ms", "p99_ms")}
    figures["cpu_us"] = (after.total - before.total) * 1e6 / answered
    if running.front:
        figures["front_us"] = (after.front - before.front) * 1e6 / answered
        figures["worker_us"] = (after.others - before.others) * 1e6 / answered
    return figures


def closed(load: Load, ask: Ask, port: int, folder: pathlib.Path, seconds: float) -> Figures:
    """Clients that wait for their answer."""
    (folder / "body").write_bytes(ask.body)
    script = folder / "post.lua"
    script.write_text(
        f"wrk.method = 'POST'\nlocal file = io.open('{folder / 'body'}', 'rb')\nwrk.body = file:read('*a')\n"
        + "".join(f"wrk.headers['{name}'] = '{value}'\n" for name, value in ask.headers.items())
    )
    url = f"http://127.0.0.1:{port}{ask.path}"
    command = [
        "wrk",
        "-t1",
        f"-c{load.connections}",
        f"-d{seconds:.0f}s",
        "--timeout",
        "20s",
        "--latency",
        "-s",
        str(script),
    ]
    out = subprocess.run([*command, url], check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    return read_wrk(out)


def read_wrk(out: str) -> Figures:
    """The figures of what wrk printed; its rate counts errors too, ours does not."""
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    lost = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    requests = float(find(r"(\d+) requests in", out)[1])
    not_ok = float(wrong[1] if wrong else 0)
    return {
        "requests": requests,
        "rate": float(find(r"Requests/sec:\s+([\d.]+)", out)[1]) * (requests - not_ok) / max(1.0, requests),
        "p50_ms": wrk_quantile(out, 50),
        "p99_ms": wrk_quantile(out, 99),
        "not_ok": not_ok,
        "lost": float(sum(map(int, lost.groups())) if lost else 0),
    }


def wrk_quantile(out: str, percent: int) -> float:
    """A latency of wrk's list in milliseconds."""
    number, unit = find(rf"(?m)^\s+{percent}%\s+([\d.]+)(us|ms|s|m)", out).groups()
    return float(number) * UNITS_MS[unit]


def find(pattern: str, out: str) -> re.Match[str]:
    """A figure in a tool's output, which must have it."""
    if found := re.search(pattern, out):
        return found
    raise RuntimeError(f"the load generator told nothing: {out.strip()[-200:]}")


def grpc(load: Load, ask: Ask, port: int, folder: pathlib.Path, seconds: float) -> Figures:
    """Calls on a few connections with many streams each."""
    streams = load.connections // GRPC_CONNECTIONS
    flags = [f"-c{GRPC_CONNECTIONS}", f"-m{streams}", f"-D{max(1, round(seconds))}"]
    return read_h2load(h2load(ask, port, folder, flags), GRPC_FRAME + len(ask.answer))


def h2load(ask: Ask, port: int, folder: pathlib.Path, flags: list[str]) -> str:
    """What h2load prints."""
    (folder / "body").write_bytes(ask.body)
    headers = [word for name, value in ask.headers.items() for word in ("-H", f"{name}: {value}")]
    command = ["h2load", *flags, "-d", str(folder / "body"), *headers, f"http://127.0.0.1:{port}{ask.path}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def read_h2load(out: str, answer_bytes: int) -> Figures:
    """The figures of what h2load printed; it knows no quantiles, and takes a gRPC error, which has no data, for success."""
    done, good = map(float, find(r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded", out).groups())
    right = min(good, int(find(r"\((\d+)\) data", out)[1]) // answer_bytes)
    return {
        "requests": done,
        "rate": float(find(r"finished in [\d.]+\w+, ([\d.]+) req/s", out)[1]) * right / max(1.0, done),
        "not_ok": done - right,
        "lost": 0.0,
    }


def bench(load: Load, ask: Ask, port: int, folder: pathlib.Path, seconds: float) -> Figures:
    """Clients that wait, or requests that come whatever happens; their latency counts from when they were due."""
    (folder / "body").write_bytes(ask.body)
    headers = [word for name, value in ask.headers.items() for word in ("--header", f"{name}: {value}")]
    phases = [f"{load.rate}x{seconds:g}s", *([f"{load.then}x{RECOVERY_S}s"] if load.then else [])]
    waiting = ("--connections", str(load.connections), "--duration", f"{seconds:g}s", "--timeout", "20s")
    coming = ("--phase", *phases, "--pool", str(POOL), "--timeout", f"{TIMEOUT_S}s")
    command = [
        *(str(GENERATOR), "bench", f"http://127.0.0.1:{port}{ask.path}", *(coming if load.open else waiting)),
        *("--objective", f"{OBJECTIVE_MS}ms", "--warm-up", "0s"),
        *("--body-file", str(folder / "body"), *headers, "--quiet", "--keep-going", "--json", "-"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"jitney bench failed: {done.stderr.strip()[-300:]}")
    return read_bench(json.loads(done.stdout))


def read_bench(told: dict[str, Any]) -> Figures:
    """The figures of what `jitney bench` told of one phase and perhaps a quiet one after it."""
    first, *later = told["phases"]
    figures = {
        "requests": float(sum(phase["offered"] for phase in told["phases"])),
        "not_ok": float(sum(phase["offered"] - phase["answered"] for phase in told["phases"])),
        "lost": float(first["lost"]),
        "rejected": float(first["rejected"]),
        "rate": float(first["answered_per_s"]),
        "good_per_s": float(first["good_per_s"]),
        "p50_ms": float(first["answer_p50_ms"]),
        "p99_ms": float(first["answer_p99_ms"]),
        "lag_p99_ms": float(told["generator"]["lag_p99_ms"]),
    }
    for phase in later:
        figures["later_good_per_s"] = float(phase["good_per_s"])
        figures["later_p99_ms"] = float(phase["answer_p99_ms"])
        figures["recovery_s"] = float(phase["last_bad_s"])
    return figures
