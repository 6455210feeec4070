"""The rows that must come out alike at every start: each start measures throughput, tail, pauses, the first request.

`jitney bench` is one generator; wrk with a body from Lua is the second where its binary is given. A figure is the worst
of all starts.
"""

from __future__ import annotations

import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from on_gpu import at_once, bare, load, pictures
from on_gpu.rows import kept
from on_gpu.session import JPEG, Bench
from server import Server

ALONE = 24
"""Requests one after another, whose median the first one is compared with."""
THREADS = 8
"""Of wrk."""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}

Row = tuple[Callable[[Bench], Server], Callable[[Bench], bare.Loop], int]


def compiled_loop(bench: Bench) -> bare.Loop:
    """The bare compiled loop, after the server has compiled."""
    net, plan = bench.net(bench.plan.net), bench.plan
    return bare.compiled_loop(net, plan.scaled(256), plan.form, kept(plan.work))


ROWS: dict[str, Row] = {
    "first": (Bench.script_server, lambda bench: bench.script_loop, 384),
    "compiled": (Bench.compiled_server, compiled_loop, 768),
}


def measured(bench: Bench, name: str, starts: int, wrk: pathlib.Path | None) -> dict:
    """A row: every start, the worst of them, and what the generators can do at most."""
    serve, make_loop, connections = ROWS[name]
    connections = bench.plan.scaled(connections)
    rounds, loop = [], None
    for number in range(starts):
        bench.close()
        server = serve(bench)
        loop = loop or make_loop(bench)
        rounds.append(one_start(bench, server, loop, connections, wrk))
        shown = ", ".join(f"{key} {value:.2f}" for key, value in rounds[-1].items())
        print(f"  {name} start {number + 1}: {shown}", file=sys.stderr, flush=True)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    bench.close()
    return {"worst": worst(rounds), "starts": rounds, "ceiling": ceiling(bench, connections, wrk)}


def one_start(bench: Bench, server: Server, loop: bare.Loop, connections: int, wrk: pathlib.Path | None) -> dict:
    """What one start of the server came to."""
    plan = bench.plan
    body = pictures.files(bench.alike)[0]
    alone = [timed(server, body) for _ in range(ALONE)]
    found = {"first_over_median": alone[0] / statistics.median(alone[1:])}
    found["bare_per_s"] = loop.rate(plan.seconds / 2)
    ours = load.closed_loop(server, bench.alike, JPEG, connections, plan.seconds, plan.warm_up)
    found |= {key: ours[key] for key in ("per_s", "p50_ms", "p99_ms")}
    found["tail"] = found["p99_ms"] / found["p50_ms"]
    if wrk is not None:
        other = with_wrk(wrk, server.port(), bench.alike, connections, plan.seconds)
        found |= {f"wrk_{key}": value for key, value in other.items()}
        found["wrk_tail"] = found["wrk_p99_ms"] / found["wrk_p50_ms"]
        found["wrk_share"] = found["wrk_per_s"] / found["bare_per_s"]
    found["share"] = found["per_s"] / found["bare_per_s"]
    described = server.ask("/models/bench")[0]
    pauses = [it.get("garbageCollection", {}).get("longestSeconds", 0.0) for it in described["workers"]]
    found["longest_pause_ms"] = 1e3 * max(pauses, default=0.0)
    return found


def timed(server: Server, body: bytes) -> float:
    """How long one request takes, alone."""
    began = time.perf_counter()
    load.answers(server, [body], JPEG)
    return time.perf_counter() - began


def worst(rounds: list[dict]) -> dict:
    """The worst of each figure: the least of rates and shares, the most of everything else."""
    least = ("per_s", "share")
    return {key: (min if key.endswith(least) else max)(it[key] for it in rounds) for key in rounds[0]}


def ceiling(bench: Bench, connections: int, wrk: pathlib.Path | None) -> dict:
    """What the generators reach against a server that answers at once."""
    with at_once.serving() as port:
        found = {"per_s": load.closed_loop_at(port, bench.alike, JPEG, connections, 2, 0.5)["per_s"]}
        if wrk is not None:
            found["wrk_per_s"] = with_wrk(wrk, port, bench.alike, connections, 2)["per_s"]
    return found


def with_wrk(wrk: pathlib.Path, port: int, bodies: pathlib.Path, connections: int, seconds: float) -> dict:
    """A closed loop of wrk with one picture."""
    script = bodies.parent / "wrk.lua"
    picture = sorted(bodies.iterdir())[0]
    script.write_text(
        f'local file = io.open("{picture}", "rb")\n'
        'wrk.method, wrk.body = "POST", file:read("*a")\n'
        f'wrk.headers["Content-Type"] = "{JPEG}"\n'
    )
    command = [str(wrk), "-t", str(min(THREADS, connections)), "-c", str(connections), "-d", f"{round(seconds)}s"]
    command += ["--latency", "--timeout", "60s", "-s", str(script), f"http://127.0.0.1:{port}/predictions/bench"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(f"wrk: {told}")
    found = {"per_s": float(re.search(r"Requests/sec: +([\d.]+)", told)[1])}
    for share in (50, 99):
        number, unit = re.search(rf"{share}% +([\d.]+)(us|ms|s|m)", told).groups()
        found[f"p{share}_ms"] = float(number) * UNITS[unit]
    return found


def table(rows: dict[str, dict]) -> str:
    """The worst of all starts as Markdown."""
    names = list(rows)
    keys = list(dict.fromkeys(key for row in rows.values() for key in row.get("worst", {})))
    lines = [f"| worst of all starts | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for key in keys:
        values = (row.get("worst", {}).get(key) for row in rows.values())
        lines.append(f"| {key} | {' | '.join('' if it is None else f'{it:,.2f}' for it in values)} |")
    for key in ("per_s", "wrk_per_s"):
        values = [row.get("ceiling", {}).get(key) for row in rows.values()]
        if any(values):
            lines.append(f"| generator's ceiling, {key} | {' | '.join(f'{it or 0:,.0f}' for it in values)} |")
    return "\n".join(lines)
