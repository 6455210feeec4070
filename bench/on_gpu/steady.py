"""The rows that must come out alike at every start: each start measures throughput, tail, pauses, the first request.

`jitney bench` is one generator; wrk with a body from Lua is the second where its binary is given. A figure is the worst
of all starts. Of the first request it is said where its time went, and of the slowest start what was different there.
"""

from __future__ import annotations

import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from on_gpu import at_once, bare, figures, load, pictures
from on_gpu.rows import kept
from on_gpu.session import JPEG, Bench
from on_gpu.watch import STAGES, Watch, stages
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
    rounds, facts, loop = [], [], None
    for number in range(starts):
        bench.close()
        server = serve(bench)
        loop = loop or make_loop(bench)
        found, seen = one_start(bench, server, loop, connections, wrk)
        rounds.append(found)
        facts.append({**seen, "ready_s": bench.started_seconds[bench.open[0]]})
        print(f"  {name} start {number + 1}: {shown(found)}", file=sys.stderr, flush=True)
        print("\n".join(remarks(facts[-1])), file=sys.stderr, flush=True)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    bench.close()
    by_share = sorted(range(starts), key=lambda number: rounds[number]["share"])
    for what, number in (("slowest", by_share[0]), ("middle", by_share[starts // 2])):
        print(f"  {name}, the {what} start is number {number + 1}:", file=sys.stderr)
        print("\n".join(remarks(facts[number])), file=sys.stderr, flush=True)
    return {"worst": worst(rounds), "starts": rounds, "facts": facts, "ceiling": ceiling(bench, connections, wrk)}


def shown(found: dict[str, float]) -> str:
    """Figures in one line."""
    return ", ".join(f"{key} {value:.2f}" for key, value in found.items())


def remarks(facts: dict) -> list[str]:
    """What was seen at a start: the first request beside the usual one, and the worker and the GPU under load."""
    lines = [f"  - {which} request, ms: {shown(facts[which])}" for which in ("first", "usual")]
    return [*lines, f"  - ready after {facts['ready_s']:.1f} s", *list(figures.remarks("load", facts["load"]))[1:]]


def one_start(
    bench: Bench, server: Server, loop: bare.Loop, connections: int, wrk: pathlib.Path | None
) -> tuple[dict, dict]:
    """What one start of the server came to, and what was seen meanwhile."""
    plan = bench.plan
    body = pictures.files(bench.alike)[0]
    first, *others = [timed(server, body) for _ in range(ALONE)]
    usual = {key: statistics.median(it[key] for it in others) for key in first}
    found = {"first_over_median": first["total"] / usual["total"]}
    found["bare_per_s"] = loop.rate(plan.seconds / 2)
    with Watch(server, plan.warm_up) as watch:
        ours = load.closed_loop(server, bench.alike, JPEG, connections, plan.seconds, plan.warm_up)
    seen = {"first": first, "usual": usual, "load": {"facts": {**watch.facts(), "generator": ours["generator"]}}}
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
    return found, seen


def timed(server: Server, body: bytes) -> dict[str, float]:
    """The milliseconds that one request takes, alone: all of it, and what the server and its worker say of them."""
    before = stages(server.ask("/models/bench")[0])
    began = time.perf_counter()
    _, timing = load.ask(server, body, JPEG)
    found = {"total": 1e3 * (time.perf_counter() - began)}
    found |= {name: float(took) for name, took in re.findall(r"(\w+);dur=([\d.]+)", timing)}
    _, *seconds = (after - earlier for earlier, after in zip(before, stages(server.ask("/models/bench")[0])))
    return found | {stage: 1e3 * took for stage, took in zip(STAGES, seconds)}


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
