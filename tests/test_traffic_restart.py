"""Shares that changed on a live server: where it says so, and what a restart goes on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from harness.archives import Store
from harness.server import ASK_SECONDS, FREE_ADDRESSES, Server
from harness.wait import until
from test_traffic import RULE, SOMETIMES, asked, both_ready, entry, put, versions

Start = Callable[..., Server]
DOCUMENT = {"shares": {"1.0": 70, "2.0": 30}, "return": RULE}


def failing(store: Store) -> list[Path]:
    """Two versions, of which the second fails on a bad day."""
    one, two = versions(store)
    two.unlink()
    return [one, store.mar("m", source=SOMETIMES, version="2.0").rename(two)]


def written(path: Path, archives: list[Path], traffic: object) -> Path:
    """A configuration with these shares."""
    one, two = map(str, archives)
    models = [{"name": "m", "path": one, "traffic": traffic}, {"name": "m", "path": two}]
    path.write_text(json.dumps({"models": models}))
    return path


def traffic(server: Server) -> dict[str, Any]:
    return server.manage("GET", "/models/m/traffic").json()


def sent_back(server: Server) -> str:
    """Lets version 2.0 fail until it was sent back, and says why it was."""
    ask = requests.Session()
    for _ in range(300):
        ask.post(server.url("/predictions/m"), data=b"good day", timeout=ASK_SECONDS)

    def returned() -> str | None:
        for _ in range(20):
            ask.post(server.url("/predictions/m"), data=b"bad day", timeout=ASK_SECONDS)
        return traffic(server).get("returned", {}).get("2.0")

    return until(returned, "version 2.0 was sent back", poll=0)


def kept(server: Server) -> Path:
    return server.cwd / "jitney-jobs" / "traffic.json"


def test_a_version_that_was_sent_back_stays_back_after_a_kill(start: Start, store: Store, tmp_path: Path):
    config, audit = written(tmp_path / "jitney.yaml", failing(store), DOCUMENT), tmp_path / "audit.log"
    server = both_ready(start("serve", "--config", config, "--audit-log", audit))
    assert traffic(server) == DOCUMENT
    assert not kept(server).parent.exists(), "there is nothing to keep yet"
    why = sent_back(server)
    until(lambda: why in kept(server).read_text() if kept(server).exists() else None, "it is written")
    (line,) = until(
        lambda: [line for line in map(json.loads, audit.read_text().splitlines()) if "return" in line["operation"]],
        "it is an event",
    )
    assert (line["operation"], line["after"]) == ("traffic_return", {"m/2.0": {"share": 0.0, "returned": why}})
    assert line["before"] == {"m/2.0": {"share": 0.3}}
    before = traffic(server)
    assert before["shares"] == {"1.0": 70, "2.0": 0}
    server.kill()

    again = both_ready(start("serve", "--config", config, cwd=server.cwd))
    assert traffic(again) == before
    assert entry(again, "2.0")["returned"] == why
    again.logged("shares as before the restart")
    assert {asked(again, f"user-{number}") for number in range(20)} == {"1.0"}
    again.kill()

    written(config, failing(store), {**DOCUMENT, "shares": {"1.0": 60, "2.0": 40}})
    other = both_ready(start("serve", "--config", config, cwd=server.cwd))
    assert traffic(other)["shares"] == {"1.0": 60, "2.0": 40}, "another document begins anew"
    other.logged("so they begin anew")


def test_a_promotion_is_where_it_was_after_a_kill(start: Start, store: Store, tmp_path: Path):
    rules = {"return": {**RULE, "after": 5}, "promote": "50% 100% every 0.1s"}
    config = written(tmp_path / "jitney.yaml", versions(store), {"shares": {"1.0": 90, "2.0": 10}, **rules})
    server = both_ready(start("serve", "--config", config))

    def is_default() -> bool:
        for number in range(50):
            asked(server, f"user-{number}")
        return entry(server, "2.0")["isDefault"]

    until(is_default, "version 2.0 is the default")
    until(lambda: json.loads(kept(server).read_text())["models"]["m"]["default"] == "2.0", "it is written")
    server.kill()
    again = both_ready(start("serve", "--config", config, cwd=server.cwd))
    assert entry(again, "2.0")["isDefault"]
    assert traffic(again) == {"shares": {"2.0": 100}}


def test_shares_that_somebody_set_are_there_after_a_kill(start: Start, store: Store):
    models = [f"m={path}" for path in versions(store)]
    server = both_ready(start("serve", *models))
    split = {"shares": {"1.0": 25, "2.0": 75}, "sticky": "header:x-user"}
    assert put(server, split).status_code == 200
    server.kill()
    again = both_ready(start("serve", *models, cwd=server.cwd))
    assert traffic(again) == split
    requests.delete(again.url("/models/m/traffic", "management"), timeout=ASK_SECONDS)
    assert json.loads(kept(again).read_text()) == {"models": {}}
    again.kill()
    assert traffic(both_ready(start("serve", *models, cwd=server.cwd))) == {"shares": {"1.0": 100}}
    kept(server).write_text("{")
    assert traffic(both_ready(start("serve", *models, cwd=server.cwd))) == {"shares": {"1.0": 100}}


def test_of_two_servers_with_one_folder_the_first_keeps_its_shares(start: Start, store: Store):
    models = [f"m={path}" for path in versions(store)]
    first = both_ready(start("serve", *models))
    early = both_ready(start("serve", *models, cwd=first.cwd))
    mine, other = ({"shares": {"1.0": share, "2.0": 100 - share}, "sticky": "header:x-user"} for share in (25, 60))
    assert put(first, mine).status_code == 200
    text = kept(first).read_text()
    late = both_ready(start("serve", *models, cwd=first.cwd))
    assert traffic(late) == {"shares": {"1.0": 100}}, "those are another server's"
    why = "another server keeps its shares there; name another folder with jobs_dir"
    late.logged(f"not taken up: {why}")
    assert put(early, other).status_code == 200
    early.logged(why)
    assert traffic(early) == other
    assert kept(first).read_text() == text
    first.kill()
    assert put(late, other).status_code == 200
    assert kept(first).read_text() == text, "they are there for the first one's restart"
    assert traffic(both_ready(start("serve", *models, cwd=first.cwd))) == mine


def test_torchserve_keeps_what_was_sent_back_in_its_snapshots(start: Start, store: Store, tmp_path: Path):
    names = [path.name for path in failing(store)]
    config = tmp_path / "config.properties"
    config.write_text(FREE_ADDRESSES)
    flags = ["--foreground", "--disable-token-auth", "--enable-model-api", "--model-store", store.path]
    models = ["--models", ",".join(f"m={name}" for name in names)]
    server = both_ready(start("torchserve", "--start", *flags, "--ts-config", config, *models))
    assert put(server, DOCUMENT).status_code == 200
    why = sent_back(server)

    def newest() -> Path:
        return sorted((server.cwd / "logs/config").glob("*.cfg"))[-1]

    until(lambda: "returned" in newest().read_text(), "the snapshot has it")
    before = traffic(server)
    server.kill()
    again = both_ready(start("torchserve", "--start", *flags, "--ts-config", newest()))
    assert traffic(again) == before
    assert before["returned"] == {"2.0": why}


def test_a_list_changes_shares_and_its_workers_stay(start: Start, store: Store, tmp_path: Path):
    one, two = versions(store)
    path = tmp_path / "models.yaml"

    def listed(shares: dict[str, int]) -> None:
        first = {"name": "m", "version": "1.0", "path": str(one), "traffic": {"shares": shares}}
        path.write_text(json.dumps({"models": [first, {"name": "m", "version": "2.0", "path": str(two)}]}))

    listed({"1.0": 90, "2.0": 10})
    flags = ["--registrations", path, "--registrations-every", "0.1s"]
    server = start("serve", *flags, wait_for_workers=False)
    health = server.url("/v2/health/ready")
    until(lambda: requests.get(health, timeout=ASK_SECONDS).status_code == 200, "the models of the list are loaded")
    until(lambda: traffic(server)["shares"] == {"1.0": 90, "2.0": 10}, "the shares of the list")
    pids = server.ready("m", "1.0"), server.ready("m", "2.0")
    listed({"1.0": 50, "2.0": 50})
    until(lambda: traffic(server)["shares"] == {"1.0": 50, "2.0": 50}, "the new shares of the list")
    assert (server.ready("m", "1.0"), server.ready("m", "2.0")) == pids
    assert {asked(server, f"user-{number}") for number in range(40)} == {"1.0", "2.0"}
