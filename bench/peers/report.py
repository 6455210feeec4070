"""docs/reference/performance.md from the file of figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .goals import C256, GOALS, OVER_GRPC
from .results import Results
from .servers import JITNEY, PEERS, SERVERS, Server
from .workloads import GRPC, POOL, TIMEOUT_S, W7, WORKLOADS, Load, Workload

BASE = "jitney-serve"
"""The row that ratios are relative to."""
BUSY = 0.5
"""Load average per core from which the machine counts as busy."""
AHEAD = 0.01
"""From which share on a difference counts."""
ANSWERED = 0.95
"""The share of requests that a peer must answer for its latencies to count as better than ours."""


@dataclass(frozen=True)
class Column:
    """A figure: how it is called, whether more of it is better, how it is written."""

    name: str
    title: str
    more_is_better: bool
    write: Callable[[float], str]

    def better(self, ratio: float) -> bool:
        """Whether someone whose value is `ratio` times ours is ahead, by more than nothing."""
        return ratio > 1 + AHEAD if self.more_is_better else ratio < 1 - AHEAD


def figures(value: float) -> str:
    """Three figures are enough."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


RATE = Column("rate", "answers/s", True, figures)
GOOD = Column("good_per_s", "answers/s within 100 ms", True, figures)
P50 = Column("p50_ms", "p50 ms", False, figures)
P99 = Column("p99_ms", "p99 ms", False, figures)
CPU = Column("cpu_us", "CPU µs/answer", False, figures)
LAG = Column("lag_p99_ms", "generator late by ms, p99", False, figures)
RECOVERY = Column("recovery_s", "good again after s", False, figures)


def columns(load: Load) -> tuple[Column, ...]:
    """What is shown of a load, with the ratio to our base beside it where it is compared."""
    if load.scenario == "Offline":
        return (RATE, CPU)
    if load.then:
        return (GOOD, RATE, P50, P99, CPU, RECOVERY, LAG)
    return (GOOD, P50, P99, CPU, LAG) if load.open else (RATE, P50, P99, CPU)


def compared(load: Load) -> tuple[Column, ...]:
    """In which columns one can lose. The latency of the few answers that an overloaded server gives says nothing."""
    if load.scenario == "Offline":
        return (RATE, CPU)
    if load.then:
        return (GOOD, CPU, RECOVERY)
    return (GOOD if load.open else RATE, P50, P99, CPU)


def page(results: Results) -> str:
    """The whole page."""
    parts = [
        "# Performance beside other servers",
        "`make bench-peers` writes this page: it installs each server in an environment of its own, runs the workloads on all of them in one run, and makes the tables from `bench/peers/results.json`. Do not edit it.",
        machine(results),
        "## Goals\n\n" + goals(results),
        "## Where we lose\n\n" + losses_text(results),
        *(workload_text(results, workload) for workload in (*WORKLOADS.values(), W7) if ran(results, workload)),
        "## Footprint\n\n" + footprint(results),
        "## Versions and settings\n\n" + versions(results),
    ]
    return "\n\n".join(parts) + "\n"


def ran(results: Results, workload: Workload) -> bool:
    """Whether there are figures of it."""
    return any(one.workload == workload.name for one in results.figures)


def machine(results: Results) -> str:
    """Where, how and when it was measured."""
    told = results.machine
    torch = f", torch {told['torch']} on one thread" if "torch" in told else ""
    text = (
        f"Machine: {told.get('cores', '?')} cores ({told.get('cpu', '?')}), {told.get('memory_gib', '?')} GiB, "
        f"{told.get('system', '?')}, Python {told.get('python', '?')}{torch}, no GPU, loopback; server, workers and load generator share the cores. "
        "Every round starts each server anew for each workload, in the opposite order of the round before. "
        "Figures are medians of the rounds. "
        "A ratio is a server's figure over that of `jitney serve` in the same round, again the median. "
        "CPU counts all processes of a server, divided by the answers; where the front is a process of its own, front and workers stand apart. "
        "Closed loops are driven by wrk unless they are named otherwise, gRPC by h2load, open loops (Poisson, latency from the moment at which a request was due, at most "
        f"{POOL:,} connections, {TIMEOUT_S} s to answer) by `jitney bench`. "
        "Before and after each load an answer is checked.\n\n" + "\n".join(map(run_text, results.runs))
    )
    loads = [one for run in results.runs for one in run["load_average"]]
    cores = int(told.get("cores", "1"))
    if loads and max(loads) > BUSY * cores:
        text += (
            f"\n\n**The machine was busy with other work (load average {min(loads):g} to {max(loads):g} on {cores} cores): "
            "rates and latencies of this page say little; CPU per answer and ratios are the better part.**"
        )
    return text


def run_text(run: dict[str, Any]) -> str:
    """What was measured in one go, and for how long."""
    peers = [one for one in PEERS if one.name in run.get("servers", [])]
    beside = f", beside {', '.join(one.title for one in peers)}" if peers else ""
    slow = ", ".join(one.title for one in peers if one.slow)
    shorter = f"; {run['slow_share']:.0%} of that for {slow}" if slow and run["slow_share"] != 1 else ""
    rounds = "1 round" if run["rounds"] == 1 else f"{run['rounds']} rounds"
    return f"- {run['day']}: {rounds}{beside}; {run['seconds']:g} s for each load after a warm-up, {run['overload_seconds']:g} s for W5's overload{shorter}."


def title(name: str) -> str:
    """How a server is called on the page."""
    return SERVERS[name].title if name in SERVERS else name


def workload_text(results: Results, workload: Workload) -> str:
    """A workload with a table for each of its loads."""
    parts = [f"## {workload.name}\n\n{workload.title}."]
    loads = (*workload.loads, GRPC) if workload.name == "W1" else workload.loads
    for load in loads:
        rows = [row for server in SERVERS.values() if (row := table_row(results, server, workload, load))]
        parts += [f"**{load.name}**", table(header(load), rows)] if rows else []
    for server in SERVERS.values():
        if errors := results.errors(server.name, workload.name):
            count = f"in {len(errors)} of the rounds" if len(errors) > 1 else "once"
            parts.append(f"{server.title} failed {count}: {errors[0]}")
    parts += [
        f"{server.title}: not run, {results.missing[server.name]}."
        for server in PEERS
        if server.name in results.missing
    ]
    if workload.name in results.missing:
        parts.append(f"Not run: {results.missing[workload.name]}.")
    return "\n\n".join(parts)


def header(load: Load) -> list[str]:
    """The titles of a load's table."""
    names = ["server"]
    for column in columns(load):
        if load.grpc and column in (P50, P99):
            continue
        names.append(column.title)
        if column is CPU:
            names.append("front + workers")
        if column in (RATE, GOOD, CPU):
            names.append("ratio")
    return [*names, "other answers"]


def table_row(results: Results, server: Server, workload: Workload, load: Load) -> list[str]:
    """A server's figures under a load; nothing if it has none."""
    key = (server.name, workload.name, load.name)
    if not results.of(*key):
        return []
    row = [f"**{server.title}**" if server.ours else server.title]
    for column in columns(load):
        if load.grpc and column in (P50, P99):
            continue
        value = results.median(*key, column.name)
        row.append(
            recovery(results, server.name, workload.name, load.name) if column is RECOVERY else shown(column, value)
        )
        if column is CPU:
            row.append(apart(results, *key))
        if column in (RATE, GOOD, CPU):
            ratios = results.ratios(server.name, BASE, workload.name, load.name, column.name)
            row.append("1" if server.name == BASE else figures(statistics.median(ratios)) if ratios else "")
    requests = sum(results.values(*key, "requests").values())
    lost = 0 if load.by_bench else sum(results.values(*key, "lost").values())
    wrong = sum(results.values(*key, "not_ok").values()) + lost
    wrong_share = wrong / requests if requests else 0
    dead = sum(1 for value in results.values(*key, "right_after").values() if not value)
    row.append(
        ("0" if not wrong else f"{wrong_share:.1%}")
        + (f"; no right answer after it in {dead} of {len(results.of(*key))} rounds" if dead else "")
    )
    return row


def shown(column: Column, value: float | None) -> str:
    """A value or nothing."""
    return "" if value is None else column.write(value)


def apart(results: Results, server: str, workload: str, load: str) -> str:
    """CPU of front and workers."""
    front, worker = (results.median(server, workload, load, name) for name in ("front_us", "worker_us"))
    return "" if front is None or worker is None else f"{figures(front)} + {figures(worker)}"


def recovery(results: Results, server: str, workload: str, load: str) -> str:
    """When the last bad answer of the quiet time was due; never if hardly any was good."""
    good = results.median(server, workload, load, "later_good_per_s")
    value = results.median(server, workload, load, "recovery_s")
    if good is None or value is None:
        return ""
    return "not within 3" if value > 2.8 else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


@dataclass(frozen=True)
class Loss:
    """A figure in which a peer is ahead of a way to run Jitney."""

    workload: str
    load: str
    column: Column
    ours: str
    peer: str
    our_value: float
    peer_value: float
    ratios: tuple[float, ...]

    @property
    def always(self) -> bool:
        """Whether the peer was ahead in every round."""
        return all(map(self.column.better, self.ratios))

    def text(self) -> str:
        """The peer with its figure, and how it compares."""
        often = "" if self.always else ", not in every round"
        return f"{title(self.peer)} {self.column.write(self.peer_value)} ({figures(statistics.median(self.ratios))} of ours{often})"


def losses(results: Results) -> Iterator[Loss]:
    """Every figure in which the median of a peer is ahead of ours, for each way to run Jitney."""
    loads = [(workload, load) for workload in WORKLOADS.values() for load in workload.loads]
    for workload, load in loads:
        for column, ours, peer in itertools.product(compared(load), JITNEY, PEERS):
            cell = (workload.name, load.name)
            ratios = results.ratios(peer.name, ours.name, *cell, column.name)
            mine, theirs = (results.median(name, *cell, column.name) for name in (ours.name, peer.name))
            if not ratios or mine is None or theirs is None or not column.better(statistics.median(ratios)):
                continue
            if column in (P50, P99) and answered_share(results, peer.name, *cell) < ANSWERED:
                continue
            yield Loss(*cell, column, ours.name, peer.name, mine, theirs, tuple(ratios))


def answered_share(results: Results, server: str, workload: str, load: str) -> float:
    """Of its requests under a load."""
    key = (server, workload, load)
    requests = sum(results.values(*key, "requests").values())
    return 1 - sum(results.values(*key, "not_ok").values()) / requests if requests else 0.0


def losses_text(results: Results) -> str:
    """The table of all losses, also of those that are small."""
    found: dict[tuple[str, ...], list[Loss]] = {}
    for loss in losses(results):
        key = (f"{loss.workload}, {loss.load}", loss.column.title, title(loss.ours), loss.column.write(loss.our_value))
        found.setdefault(key, []).append(loss)
    if not found:
        return "In none of the figures below, for none of the ways to run Jitney."
    rows = [[*key, "; ".join(loss.text() for loss in each)] for key, each in found.items()]
    return (
        "Every figure in which a peer is ahead of one of the ways to run Jitney by 1 % or more. "
        "Latencies count if the peer answered 95 % of the requests.\n\n"
        + table(["load", "figure", "Jitney", "its figure", "ahead of it"], rows)
    )


def goals(results: Results) -> str:
    """What was promised, and what it is."""
    rows = []
    for goal in GOALS:
        value = goal.value(results)
        if value is not None:
            rows.append([goal.text, goal.bar, figures(value) + goal.unit, "met" if goal.met(value) else "**missed**"])
    return table(["what", "goal", "measured", ""], rows) if rows else "None of them was measured."


def footprint(results: Results) -> str:
    """Memory of all processes before the first load, and the time from the start to the first right answer."""
    rows = []
    for server in SERVERS.values():
        key = (server.name, "W1", (C256 if server.name != OVER_GRPC else GRPC.name))
        start, idle = (results.median(*key, name) for name in ("start_s", "idle_mib"))
        if start is not None and idle is not None:
            rows.append([server.title, figures(start), f"{idle:.0f}"])
    head = ["server with W1's model", "s from the start to the first answer", "MiB (PSS) of all processes after it"]
    return table(head, rows) if rows else "Not measured."


def versions(results: Results) -> str:
    """What ran, and how it was set."""
    rows = []
    for server in SERVERS.values():
        if server.name in results.missing:
            rows.append([server.title, "", f"not run: {results.missing[server.name]}"])
        elif server.name in results.versions:
            told = results.settings.get(server.name, {})
            texts: dict[str, list[str]] = {}
            for workload, text in sorted(told.items()):
                texts.setdefault(text, []).append(workload)
            words = "; ".join(f"{', '.join(names)}: {text}" for text, names in texts.items())
            rows.append([server.title, results.versions[server.name], words])
    return table(["server", "version", "settings"], rows)
