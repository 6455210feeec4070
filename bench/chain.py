"""A chain of three parts against the slowest of them alone, and its CPU against the same chain in Ray Serve.

    python bench/chain.py --program target/release/jitney [--ray .venv/ray/bin/python]

Each part takes 2 ms and 0.1 ms per item, at most 32 items, one worker. Three shapes: a driver that awaits three parts
one after another, parts that await each other, each of which holds its device while it works, and `jitney.chain`, which
the server runs. By turns the chain and its last part alone, on the same server, with as many connections as keep every part busy; medians of the rounds. CPU
is that of the server with all its workers, per request. `--check` fails below the bars: 0.95 of the part alone, 1/20 of
Ray's CPU.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from server import cpu, tree

HERE = pathlib.Path(__file__).parent
APP = HERE / "chain_app.py"
SHAPES = {"driver": ("Driver", "Third"), "nested": ("Outer", "Last"), "wired": ("Wired", "Third")}
"""The root of each shape, and the part that is also run alone."""
THROUGHPUT_BAR, CPU_BAR = 0.95, 1 / 20
START_S = 120.0


class Running:
    """A server with everything below it."""

    def __init__(self, command: list[str], port: int, path: str, env: dict[str, str] | None = None) -> None:
        self.port = port
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - It lives as long as the server.
        self._process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._wait(path)

    def _wait(self, path: str) -> None:
        """Waits for the first right answer."""
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("POST", path, b'{"number": 1}', {"content-type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                if answer.status == 200 and int(body) == 4:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.2)
        self.close()
        self._log.seek(0)
        raise SystemExit(f"the server did not answer:\n{self._log.read()[-4000:]}")

    def cpu_seconds(self) -> float:
        """CPU of the whole tree so far."""
        return sum(cpu(pid) for pid in tree(self._process.pid))

    def close(self) -> None:
        """Ends it and waits."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Load:
    """Clients that each wait for their answer before they ask again."""

    def __init__(self, program: str, connections: int, seconds: float) -> None:
        self._program, self._connections, self._seconds = program, connections, seconds

    def run(self, running: Running, path: str) -> tuple[float, float]:
        """Requests per second, and CPU of the server per request in microseconds."""
        self._once(running.port, path, 1.0)
        before = running.cpu_seconds()
        answered, rate = self._once(running.port, path, self._seconds)
        return rate, (running.cpu_seconds() - before) / max(answered, 1.0) * 1e6

    def _once(self, port: int, path: str, seconds: float) -> tuple[float, float]:
        command = [
            *(self._program, "bench", f"http://127.0.0.1:{port}{path}", "--connections", str(self._connections)),
            *("--duration", f"{seconds:g}s", "--warm-up", "0s", "--timeout", "30s", "--body", '{"number": 1}'),
            *("--quiet", "--keep-going", "--json", "-"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 90)
        if not done.stdout.startswith("{"):
            raise SystemExit(f"the load failed: {done.stderr.strip()[-500:]}")
        phase = json.loads(done.stdout)["phases"][0]
        if phase["answered"] < phase["offered"]:
            print(f"{phase['offered'] - phase['answered']} of {phase['offered']} requests failed", file=sys.stderr)
        return float(phase["answered"]), float(phase["answered_per_s"])


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run_jitney(flags: argparse.Namespace, shape: str) -> dict[str, float]:
    """The chain and its last part alone, by turns."""
    root, last = SHAPES[shape]
    port = free_port()
    ports = [word for name in ("management", "metrics", "grpc", "grpc-management") for word in (f"--{name}-port", "0")]
    command = [flags.program, "serve", f"{APP}:{root}", "--port", str(port), *ports, "--python", sys.executable]
    load = Load(flags.program, flags.connections, flags.seconds)
    chains: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    with Running(command, port, f"/{root}") as running:
        for _ in range(flags.rounds):
            alone.append(load.run(running, f"/{last}"))
            chains.append(load.run(running, f"/{root}"))
            print(
                f"{shape}: alone {alone[-1][0]:.0f}/s, chain {chains[-1][0]:.0f}/s {chains[-1][1]:.0f} µs",
                file=sys.stderr,
            )
    rate, cost = (statistics.median(one[at] for one in chains) for at in (0, 1))
    base = statistics.median(one[0] for one in alone)
    ratio = statistics.median(chain[0] / one[0] for chain, one in zip(chains, alone))
    return {"alone_per_s": base, "chain_per_s": rate, "of_alone": ratio, "cpu_us": cost}


def run_ray(flags: argparse.Namespace) -> dict[str, float]:
    """The same chain in Ray Serve."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        command = [flags.ray, str(HERE / "chain_ray.py"), str(port), folder]
        load = Load(flags.program, flags.ray_connections, flags.seconds)
        with Running(command, port, "/", {"RAY_USAGE_STATS_ENABLED": "0"}) as running:
            found = [load.run(running, "/") for _ in range(flags.rounds)]
    rate, cost = (statistics.median(one[at] for one in found) for at in (0, 1))
    return {"chain_per_s": rate, "cpu_us": cost}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=os.environ.get("JITNEY_BIN", "target/release/jitney"))
    parser.add_argument("--ray", help="a Python with ray[serve] 2.60")
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--ray-connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--check", action="store_true", help="fail below the bars")
    flags = parser.parse_args()
    results: dict[str, dict[str, float]] = {shape: run_jitney(flags, shape) for shape in flags.shapes}
    bad = [shape for shape, one in results.items() if one["of_alone"] < THROUGHPUT_BAR]
    if flags.ray:
        results["ray"] = run_ray(flags)
        for shape in flags.shapes:
            share = results[shape]["cpu_us"] / results["ray"]["cpu_us"]
            results[shape]["of_ray_cpu"] = share
            bad += [f"{shape} CPU"] if share > CPU_BAR else []
    print(json.dumps({name: {key: round(value, 4) for key, value in one.items()} for name, one in results.items()}))
    for name in bad:
        print(f"below the bar: {name}", file=sys.stderr)
    return int(bool(bad) and flags.check)


if __name__ == "__main__":
    sys.exit(main())
