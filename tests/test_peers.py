"""The comparison with other servers: order of the rounds, medians, ratios, what is lost. Nothing is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.package import ROOT

sys.path.insert(0, str(ROOT))

from bench.peers.goals import C256, C256_BY_US
from bench.peers.loadgen import SHARES, highest_valid
from bench.peers.measure import read_bench, read_h2load, read_wrk
from bench.peers.processes import Running, free_ports
from bench.peers.report import losses, page
from bench.peers.results import Figure, Results
from bench.peers.schedule import Lengths, order, steps
from bench.peers.servers import SERVERS, Site
from bench.peers.workloads import GRPC, JSON_BYTES, W1, W3, W5, WORKLOADS


def made(**columns: dict[str, list[float]]) -> Results:
    """Figures of W1 with 256 connections by server, value and round."""
    results = Results(
        runs=[
            {
                "rounds": 3,
                "day": "2026-01-01",
                "seconds": 3,
                "overload_seconds": 10,
                "slow_share": 1,
                "load_average": [0.1],
            }
        ]
    )
    for server, values in columns.items():
        name = server.replace("_", "-")
        for turn in range(len(next(iter(values.values())))):
            found = {key: value[turn] for key, value in values.items()}
            results.figures.append(Figure(0, turn, name, "W1", C256, 3, {"requests": 100, "not_ok": 0, **found}))
    return results


def test_loadgens_highest_valid_rate_is_found_by_halving():
    for most in (*SHARES, 0.0):
        tried = []

        def play(share: float, most: float = most, tried: list[float] = tried) -> dict[str, float]:
            tried.append(share)
            return {"rate": share, "valid": float(share <= most)}

        assert highest_valid(play).get("rate", 0.0) == most
        assert len(tried) <= 4


def test_rounds_alternate_and_workloads_stay_together():
    mine, other = SERVERS["jitney-serve"], SERVERS["mosec"]
    assert order([mine, other], 1) == [other, mine]
    told = [(step.round, step.workload.name, step.server.name) for step in steps([mine, other], [W1, W5], 2)]
    assert told == [
        (0, "W1", "jitney-serve"),
        (0, "W1", "mosec"),
        (0, "W5", "jitney-serve"),
        (0, "W5", "mosec"),
        (1, "W1", "mosec"),
        (1, "W1", "jitney-serve"),
        (1, "W5", "mosec"),
        (1, "W5", "jitney-serve"),
    ]


def test_a_server_has_only_the_workloads_that_it_can_do():
    told = {
        (step.workload.name, load.name)
        for step in steps([SERVERS["jitney-grpc"]], WORKLOADS.values(), 1)
        for load in step.loads
    }
    assert told == {("W1", GRPC.name)}
    assert [step.workload for step in steps([SERVERS["bare"]], WORKLOADS.values(), 1)] == [W3]


def test_clients_that_wait_come_from_both_generators():
    both = [(load.name, load.by_us) for load in W1.loads if load.connections == 256]
    assert both == [(C256, False), (C256_BY_US, True)]


def test_slow_servers_get_shorter_loads():
    lengths = Lengths(seconds=5, overload=10, slow_share=0.6)
    assert lengths.of(SERVERS["mosec"], W1.loads[0]) == 5
    assert lengths.of(SERVERS["ray"], W1.loads[0]) == 3
    assert lengths.of(SERVERS["ray"], W5.loads[0]) == 6


def test_ratios_are_taken_within_a_round():
    results = made(jitney_serve={"cpu_us": [10.0, 20.0, 40.0]}, mosec={"cpu_us": [30.0, 40.0, 60.0]})
    assert results.median("mosec", "W1", C256, "cpu_us") == 40
    assert results.ratios("mosec", "jitney-serve", "W1", C256, "cpu_us") == [3.0, 2.0, 1.5]
    assert "| mosec |  |  |  |  | 40.0 |  | 2.00 | 0 |" in page(results)


def test_figures_of_different_runs_are_not_mixed():
    results = made(jitney_serve={"cpu_us": [10.0]}, mosec={"cpu_us": [30.0]})
    results.figures.append(Figure(1, 0, "triton", "W1", C256, 3, {"cpu_us": 90.0}))
    assert results.ratios("triton", "jitney-serve", "W1", C256, "cpu_us") == []
    results.figures.append(Figure(1, 0, "jitney-serve", "W1", C256, 3, {"cpu_us": 45.0}))
    assert results.ratios("triton", "jitney-serve", "W1", C256, "cpu_us") == [2.0]


def test_what_is_lost_is_said_in_either_direction():
    results = made(
        jitney_serve={"rate": [100.0, 100.0, 100.0], "p50_ms": [1.0, 1.0, 1.0], "cpu_us": [9.0, 9.0, 9.0]},
        mosec={"rate": [102.0, 99.0, 130.0], "p50_ms": [0.5, 0.5, 0.5], "cpu_us": [10.0, 10.0, 10.0]},
    )
    found = {loss.column.name: loss for loss in losses(results)}
    assert set(found) == {"rate", "p50_ms"}
    assert not found["rate"].always
    assert found["p50_ms"].always
    assert found["p50_ms"].text() == "mosec 0.50 (0.50 of ours)"
    row = f"| W1, {C256} | answers/s | `jitney serve` | 100 | mosec 102 (1.02 of ours, not in every round) |"
    assert row in page(results)


def test_the_page_says_who_is_missing_and_what_failed():
    results = made(jitney_serve={"cpu_us": [10.0]}, mosec={"cpu_us": [40.0]})
    results.missing["torchserve"] = "it needs Java 17"
    results.figures.append(Figure(0, 0, "ray", "W1", C256, 3, error="not ready after 120 s"))
    text = page(results)
    assert "TorchServe: not run, it needs Java 17." in text
    assert "Ray Serve failed once: not ready after 120 s" in text
    assert "| W1, 256 connections, `jitney serve`: CPU over mosec's | at most 0.4 | 0.25 | met |" in text
    assert "busy" not in text


def test_a_busy_machine_is_admitted():
    results = made(jitney_serve={"cpu_us": [10.0]})
    results.machine, results.runs[0]["load_average"] = {"cores": "2"}, [0.4, 9.5]
    assert "The machine was busy with other work (load average 0.4 to 9.5 on 2 cores)" in page(results)


def test_results_survive_the_file(tmp_path: Path):
    results = made(jitney_serve={"cpu_us": [10.0, 11.0]})
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_the_page_in_the_repository_was_made_from_the_figures_beside_it():
    results = Results.read(ROOT / "bench" / "peers" / "results.json")
    assert (ROOT / "docs" / "reference" / "performance.md").read_text() == page(results), (
        "run `python -m bench.peers report`"
    )


def test_json_bodies_have_a_hundred_bytes_for_every_server(tmp_path: Path):
    for server in SERVERS.values():
        if server.name in ("bare", "jitney-grpc"):
            continue
        ask = server.ask(Site(W1, tmp_path, 1, (2, 3, 4, 5), tmp_path))
        assert len(ask.body) == JSON_BYTES, server.name
        assert max(map(len, strings(json.loads(ask.body)))) == int(ask.answer), server.name


def strings(value: object) -> list[str]:
    """All strings inside a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in strings(one)]
    return [value] if isinstance(value, str) else []


def test_what_the_load_generators_print_is_read():
    wrk = """Running 3s test @ http://127.0.0.1:1/
  1 threads and 256 connections
  Latency Distribution
     50%  812.00us
     75%    1.00ms
     90%    2.00ms
     99%    1.02s
  28000 requests in 3.00s, 4.00MB read
  Socket errors: connect 0, read 1, write 0, timeout 2
  Non-2xx or 3xx responses: 7000
Requests/sec:   8000.00
"""
    assert read_wrk(wrk) == {
        "requests": 28000,
        "rate": 6000,
        "p50_ms": 0.812,
        "p99_ms": 1020,
        "not_ok": 7000,
        "lost": 3,
    }
    h2load = (
        "finished in 3.01s, 8000.00 req/s, 1MB/s\n"
        "requests: 24000 total, 24256 started, 24000 done, 24000 succeeded, 0 failed, 0 errored, 0 timeout\n"
        "traffic: 1.09MB (1142000) total, 445.31KB (456000) headers (space savings 85.38%), 175.78KB (180000) data\n"
    )
    assert read_h2load(h2load, 10) == {"requests": 24000, "rate": 6000, "not_ok": 6000, "lost": 0}
    phase = {
        "offered": 100,
        "answered": 60,
        "lost": 1,
        "rejected": 39,
        "answered_per_s": 6,
        "good_per_s": 5,
        "answer_p50_ms": 7,
        "answer_p99_ms": 8,
        "last_bad_s": 9.9,
    }
    calm = {**phase, "answered": 100, "good_per_s": 10, "last_bad_s": 0.2}
    told = read_bench({"phases": [phase, calm], "generator": {"lag_p99_ms": 0.1}})
    assert (told["requests"], told["not_ok"], told["rejected"], told["good_per_s"]) == (200, 40, 39, 5)
    assert (told["later_good_per_s"], told["recovery_s"]) == (10, 0.2)


ORPHAN = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.001)
        pathlib.Path("alone").touch()
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""
"""A server with a process that left its session and its parent."""


def test_no_process_of_a_server_is_left_behind(tmp_path: Path):
    running = Running([sys.executable, "-c", ORPHAN], {}, tmp_path, front=None)
    while not (tmp_path / "alone").exists():
        assert not running.ended(), running.tail()
    assert len(running.pids()) == 2
    assert running.cost().total > 0
    running.stop()
    assert running.pids() == []


def test_free_ports_are_different():
    assert len(set(free_ports(5))) == 5
