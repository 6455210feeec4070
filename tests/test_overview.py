"""The overview of a server as the dashboard and the command line read it: one document, and the same as a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import requests

from harness.archives import Store
from harness.server import ASK_SECONDS, Server
from harness.wait import until

STREAMS_MAX = 64

SAMPLE = {
    *("requests", "answered", "late", "rejected", "failed", "cancelled", "batches", "items", "waiting", "workersReady"),
    *("queueSecondsSum", "computeSecondsSum", "p50Ms", "p90Ms", "p99Ms", "p999Ms", "memoryBytes", "restarts", "exits"),
    *("loadFailures", "settingChanges", "rejections"),
}
CLASSES = {"latencyClasses", "sizeClasses"}
"""Only where there were any since the sample before."""


def overview(server: Server) -> dict:
    """The document."""
    reply = server.manage("GET", "/overview")
    assert reply.status_code == 200, reply.text
    return reply.json()


def model(server: Server, name: str) -> dict:
    """A model's part of it."""
    (one,) = [entry for entry in overview(server)["models"] if entry["name"] == name]
    return one


def follow(server: Server, **headers: str) -> requests.Response:
    """Begins to read the stream."""
    url = server.url("/overview/stream", "management")
    return requests.get(url, headers=headers, stream=True, timeout=ASK_SECONDS)


def events(reply: requests.Response) -> Iterator[tuple[str, str]]:
    """What comes: name and data."""
    name = ""
    for line in reply.iter_lines(decode_unicode=True):
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field in ("data", "data:"):
            yield name, value


def test_the_document_has_the_server_its_models_and_their_workers(shared: Server) -> None:
    assert shared.predict("echo", b"hello").status_code == 200
    until(lambda: model(shared, "echo")["workers"][0]["memoryBytes"], "the worker's memory is known")
    told = overview(shared)
    server = told["server"]
    assert (server["dialect"], server["pid"], server["tokenNeeded"]) == ("jitney", shared.pid, False)
    assert server["state"] == "ready" and server["stateText"]
    assert server["memoryBytes"] > 1 << 20 and server["connections"] > 0
    assert told["machine"]["memoryTotalBytes"] > told["machine"]["memoryUsedBytes"] > 0
    echo = model(shared, "echo")
    assert (echo["kind"], echo["state"], echo["isDefault"], echo["lastError"]) == ("python", "ready", True, None)
    assert echo["totals"]["requests"] == echo["totals"]["answered"] >= 1 and echo["running"] == 0
    assert echo["loadSeconds"] > 0
    (worker,) = echo["workers"]
    assert worker["pid"] in shared.workers("echo").values() and worker["state"] == "ready"
    assert worker["memoryBytes"] > 1 << 20 and worker["restarts"] == 0
    assert sum(size["batches"] for size in echo["batchSizes"]) == echo["totals"]["batches"]
    for name in ("queueSeconds", "computeSeconds", "latencySeconds", "predictionRatio"):
        assert len(echo[name]["counts"]) == len(echo[name]["bounds"]) + 1, name
    assert sum(echo["latencySeconds"]["counts"]) == echo["totals"]["answered"]
    assert set(told["sample"]["models"]["echo/1.0"]) - CLASSES == SAMPLE
    assert isinstance(told["problems"], list)


def test_the_past_is_kept_for_an_hour_and_a_day(shared: Server) -> None:
    for query, seconds in [({}, 20), ({"range": "hour"}, 20), ({"range": "day"}, 300)]:
        past = shared.manage("GET", "/overview/history", **query).json()
        assert past["everySeconds"] == seconds
        assert past["samples"] and set(past["samples"][0]) == {"time", "models"}
    refused = shared.manage("GET", "/overview/history", range="week")
    assert (refused.status_code, refused.json()["message"]) == (400, 'range must be hour or day, not "week".')


def test_a_live_setting_is_changed_by_the_parameter_that_it_names(shared: Server) -> None:
    name = shared.need("tuned", "echo")
    (setting,) = [one for one in model(shared, name)["liveSettings"] if one["name"] == "max_batch_size"]
    assert (setting["value"], setting["kind"]) == ("1", "whole") and setting["about"]
    reply = shared.manage("PUT", f"/models/{name}/1.0", **{setting["parameter"]: 7})
    assert reply.status_code == 200, reply.text
    changed = model(shared, name)
    (setting,) = [one for one in changed["liveSettings"] if one["name"] == "max_batch_size"]
    assert (setting["value"], setting["source"], changed["maxBatchSize"]) == ("7", "live update", 7)


def test_a_model_that_does_not_load_says_why(shared: Server) -> None:
    archive = shared.store.mar("broken", source="import nosuchpkg\n")
    shared.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false")
    failed = until(lambda: (one := model(shared, "broken"))["state"] == "failed" and one, "loading has failed")
    assert "No module named 'nosuchpkg'" in failed["lastError"] and failed["lastErrorTime"]
    assert failed["stateText"].startswith("Loading failed with ModuleNotFoundError") and failed["loadFailures"] >= 1
    server = overview(shared)["server"]
    assert server["state"] == "degraded" and "broken (failed)" in server["stateText"]
    assert shared.manage("DELETE", "/models/broken/1.0").status_code == 200


def test_a_version_tells_why_its_last_request_failed(shared: Server) -> None:
    name = shared.need("begetter", "begetter")
    assert model(shared, name)["lastError"] is None
    assert shared.predict(name, b"not an order").status_code >= 500
    failed = until(lambda: (one := model(shared, name))["lastError"] and one, "the error is told")
    assert (failed["lastError"], failed["state"]) == ("Prediction failed", "ready") and failed["lastErrorTime"]
    assert shared.manage("DELETE", f"/models/{name}/1.0").status_code == 200


def test_a_stream_begins_with_the_history_and_many_are_refused(shared: Server) -> None:
    until(lambda: overview(shared)["sample"], "a sample was taken")
    with ExitStack() as opened:
        streams = [opened.enter_context(follow(shared)) for _ in range(STREAMS_MAX)]
        assert {stream.headers["content-type"] for stream in streams} == {"text/event-stream"}
        told = events(streams[0])
        name, data = next(told)
        history = json.loads(data)
        assert (name, history["everySeconds"]) == ("history", 2)
        assert set(history["samples"][-1]["models"]["echo/1.0"]) - CLASSES == SAMPLE
        name, first = next(told)
        name, second = next(told)
        assert name == "overview" and json.loads(second)["time"] >= json.loads(first)["time"]
        refused = shared.manage("GET", "/overview/stream")
        assert (refused.status_code, refused.json()["reason"]) == (503, "too_many_streams")
        assert overview(shared)["models"], "the document is still there"
    # The places of those who left are free again.
    with ExitStack() as opened:
        until(lambda: opened.enter_context(follow(shared)).status_code == 200, "somebody else may follow")


def test_a_page_of_another_site_gets_nothing(shared: Server) -> None:
    for path in ("/overview", "/overview/stream"):
        url = shared.url(path, "management")
        reply = requests.get(url, headers={"Host": "evil.example"}, timeout=ASK_SECONDS)
        assert reply.status_code == 403, reply.text


def test_a_page_of_another_site_takes_no_place_from_others(shared: Server) -> None:
    with follow(shared, **{"Sec-Fetch-Site": "cross-site"}) as reply:
        assert reply.status_code == 403, reply.text


def test_browsers_find_the_dashboard(shared: Server) -> None:
    home = shared.url("/", "management")
    page = requests.get(home, headers={"Accept": "text/html,*/*"}, timeout=ASK_SECONDS)
    assert page.url == shared.url("/dashboard", "management") and page.headers["content-type"].startswith("text/html")
    assert (
        page.headers["cache-control"] == "no-cache"
        and "frame-ancestors 'none'" in page.headers["content-security-policy"]
    )
    assert requests.get(home, timeout=ASK_SECONDS).status_code == 405, "others are answered as before"
    again = requests.get(page.url, headers={"If-None-Match": page.headers["etag"]}, timeout=ASK_SECONDS)
    assert (again.status_code, again.content) == (304, b"")
    assert requests.get(f"{page.url}/", timeout=ASK_SECONDS).url == page.url
    assert requests.get(f"{page.url}/no.js", timeout=ASK_SECONDS).status_code == 404
    assert f"Dashboard       {page.url}\n" in shared.stdout


def test_tokens_guard_the_overview_and_a_drain_ends_the_streams(start: Callable[..., Server], store: Store) -> None:
    server = start("serve", store.mar("echo"), "--token-auth", wait_for_workers=False)
    assert requests.get(server.url("/dashboard", "management"), timeout=ASK_SECONDS).status_code == 200
    assert server.manage("GET", "/overview").status_code == 400
    key = json.loads((server.cwd / "key_file.json").read_text())["management"]["key"]
    with follow(server, Authorization=f"Bearer {key}") as reply:
        told = events(reply)
        assert [next(told)[0], next(told)[0]] == ["history", "overview"]
        server.terminate()
        rest = list(told)
    assert rest[-1][0] == "end"
    assert json.loads(rest[-2][1])["server"]["state"] == "draining"
    assert server.wait() == 0


COLLECTS = """
import gc

def handle(data, context):
    gc.collect()
    return ["collected" for _ in data or []]
"""


def test_pauses_of_the_garbage_collector_are_shown_per_worker(start, store: Store) -> None:
    server: Server = start("serve", store.mar("collects", source=COLLECTS))

    def told() -> dict | None:
        assert server.predict("collects", b"").text == "collected"
        return model(server, "collects")["workers"][0]["garbageCollection"]

    pauses = until(told, "the worker has said how long its collector paused it")
    assert pauses["runs"] > 0 and 0 < pauses["longestSeconds"] <= pauses["seconds"]
    (worker,) = server.describe("collects")["workers"]
    assert set(worker["garbageCollection"]) == set(pauses)
