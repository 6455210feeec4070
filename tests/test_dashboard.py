"""The dashboard in a real browser against a real server: what it shows, every control, and that it asks nobody else."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import requests

from harness.browser import OpenPage, browser, open_page
from harness.server import ASK_SECONDS, Server
from harness.steady import clients
from harness.wait import until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs playwright and chromium: make test-browser"),
]

MISSING = "import nosuchpkg\n"
PHONE = 360
TABS = {
    "overview": "The last 10 minutes",
    "batching": "Batching",
    "workers": "Workers",
    "requests": "The last that failed",
    "log": "Log of this model",
    "settings": "Settings that can be changed now",
}
"""The views of a version, and a heading of each."""

LEAKY = """
kept = []


def handle(data, context):
    if not data:
        return None
    kept.append(b"x" * 10_000)
    return ["kept"] * len(data)
"""
"""A few megabytes a second."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def look(chromium: Any, shared: Server) -> Iterator[Callable[..., OpenPage]]:
    """Opens pages of the dashboard. Whatever a test does, they must not complain, nor ask another host."""
    opened: list[OpenPage] = []

    def look(hash: str = "", **options: Any) -> OpenPage:
        opened.append(open_page(chromium, shared.url(f"/dashboard{hash}", "management"), **options))
        return opened[-1]

    yield look
    for seen in opened:
        assert [
            one for one in seen.complaints if "with a status of" not in one
        ] == []  # The browser notes every such answer.
        assert all(url.startswith(shared.urls["management"]) for url in seen.asked), seen.asked
        seen.page.close()


@pytest.fixture
def echo(look: Callable[..., OpenPage]) -> Any:
    """The page of the model `echo`, once it is live."""
    page = look("#/model/echo/1.0").page
    page.get_by_role("heading", name="echo 1.0").wait_for()
    return page


def confirm(page: Any, action: str) -> None:
    """Presses the button of the open dialog, and waits until the dialog is gone."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=action, exact=True).click()
    dialog.wait_for(state="detached")


def headline(page: Any, text: str | re.Pattern[str]) -> Any:
    """The line that says what is wrong, once it does."""
    line = page.get_by_role("region", name="What is wrong now").locator(".problem", has_text=text).first
    line.wait_for()
    return line


def opened(line: Any) -> Any:
    """The same line with what to do about it."""
    if line.get_attribute("open") is None:
        line.locator("summary").click()
    return line


# -- what it shows -------------------------------------------------------------------------------


def test_a_browser_is_led_to_the_dashboard(chromium, shared):
    seen = open_page(chromium, shared.url("/", "management"))
    assert seen.page.url.rstrip("/").endswith("/dashboard")
    headline(seen.page, "ready")
    row = seen.page.get_by_role("row", name=re.compile("^echo 1.0"))
    assert "ready" in row.text_content()
    assert seen.complaints == []
    row.click()
    seen.page.get_by_role("heading", name="echo 1.0").wait_for()
    seen.page.close()


def test_traffic_is_shown_as_it_comes(look, shared):
    model = shared.need("curve", "curve", batch_size=8)
    page = look(f"#/model/{model}/1.0").page
    batching, decisions = page.get_by_role("region", name="Batching"), "Last decisions, newest first"
    with clients(shared, model, 4):
        drawn(page, r"Traffic: in time \(goodput\) [1-9]")
        drawn(page, r"Latency: p99.9 \S+ m?s, p99 \S+ m?s, p90 \S+ m?s, p50 \S+ m?s")
        drawn(page, r"Latency over time: most up to \S+ m?s")
        drawn(page, r"Where the time goes: in the queue \S+ m?s, computing \S+ m?s")
        tab(page, "Batching")
        drawn(page, r"Batch size over time: most up to \d")
        drawn(page, r"Batch sizes: \d+ batches")
        drawn(page, r"Learned time of a batch by its size: 1 items \S+ ms")
        batching.get_by_text("a worker was free and waiting did not pay").or_(
            batching.get_by_text("all expected requests had come")
        ).first.wait_for()
        page.get_by_role("list", name=decisions).get_by_text(re.compile("^sent ")).first.wait_for()
    page.get_by_role("button", name="since registered").click()
    drawn(page, r"Batch sizes: \d+ batches, \d+\.\d items each")
    tab(page, "Workers")
    page.get_by_role("region", name="Workers").get_by_text(re.compile(r"^\d+ MB$")).first.wait_for()
    shared.manage("DELETE", f"/models/{model}")


def tab(page: Any, name: str) -> None:
    """Opens one of a version's views."""
    page.get_by_role("navigation", name="Views of this version").get_by_role("link", name=name).click()
    page.get_by_role("link", name=name).and_(page.locator("[aria-current=page]")).wait_for()


def drawn(page: Any, text: str) -> None:
    """Waits for a chart whose words begin like this."""
    page.get_by_role("img", name=re.compile(f"^{text}")).wait_for()


def test_overload_is_told_in_words(look, shared):
    shared.need("curve", "curve", batch_size=1)
    assert shared.manage("PUT", "/models/curve", job_queue_size=2).status_code == 200
    page = look().page
    with clients(shared, "curve", 12):
        line = headline(page, "curve 1.0: rejecting")
        until(lambda: "%" in line.text_content(), "it says how much")
        assert "queue is full: the offered load is more than the workers can serve" in line.text_content()
        assert re.match(r"\([1-9]\)", page.title()), "the tab says it too"
        page.get_by_role("row", name=re.compile("^curve 1.0")).get_by_text("ready, rejecting").wait_for()
        opened(line).get_by_role("link", name="Open curve").click()
        drawn(page, "Rejections by reason: queue full")
    shared.manage("DELETE", "/models/curve")


def test_a_dead_worker_and_a_crash_loop_are_told_in_words(look, shared):
    model = shared.need("begetter", "begetter")
    page = look().page
    headline(page, "ready")
    told = re.compile("begetter 1.0 ha(s|ve) been restarted")
    shared.predict(model, {"exit": 3})
    assert "status 3" in headline(page, told).text_content()
    for number in range(2):  # Each body of its own: one that has ended workers is not tried again.
        shared.predict(model, {"exit": 3, "number": number})
    page.locator(".problem.bad", has_text=told).get_by_text("It exits again and again.").wait_for()
    page.get_by_role("link", name="begetter", exact=True).click()
    page.get_by_role("list", name="What happened in this time").get_by_text("a worker exited").first.wait_for()
    tab(page, "Workers")
    workers = page.get_by_role("region", name="Workers")
    workers.get_by_text("Last exit").wait_for()
    until(lambda: shared.ready(model), "it is back")
    shared.manage("DELETE", f"/models/{model}")


def test_a_leak_is_told_in_words(look, shared):
    shared.register(shared.store.mar("leaky", "echo", source=LEAKY))
    page = look().page
    with clients(shared, "leaky", 1):
        text = headline(page, "memory grows by").text_content()
    assert "leaky 1.0" in text and "a minute" in text
    page.get_by_role("link", name="leaky", exact=True).click()
    tab(page, "Workers")
    page.get_by_role("region", name="Workers").get_by_text(re.compile(r"^\+\d+ MB/min")).wait_for()
    shared.manage("DELETE", "/models/leaky")


def test_a_failed_load_is_told_in_words(look, shared):
    page = look().page
    archive = shared.store.mar("broken", "echo", source=MISSING)
    shared.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false")
    line = headline(page, "broken 1.0: could not load")
    assert "ModuleNotFoundError: No module named 'nosuchpkg'" in line.text_content()
    opened(line).get_by_role("link", name="Its warnings in the log").click()
    page.get_by_role("region", name="Log of broken").get_by_text(re.compile("could not load")).first.wait_for()
    page.get_by_role("link", name="Models", exact=True).click()
    opened(headline(page, "broken 1.0: could not load")).get_by_role("link", name="Open broken").click()
    page.get_by_role("heading", name="broken 1.0").wait_for()
    page.locator("details.error pre", has_text="nosuchpkg").wait_for()
    shared.manage("DELETE", "/models/broken")
    page.get_by_text("is not registered (any more)").wait_for()


def test_a_bad_deploy_is_rolled_back_where_it_is_told(look, shared):
    shared.register(shared.store.mar("shop", "echo", version="1.0"))
    archive = shared.store.mar("shop", source=MISSING, version="2.0")
    shared.manage("POST", "/models", url=archive.name, initial_workers=1, synchronous="false")
    until(lambda: shared.manage("PUT", "/models/shop/2.0/set-default").ok, "2.0 is the default")
    page = look().page
    line = opened(headline(page, "shop 2.0: could not load"))
    line.get_by_text("Version 1.0 is ready: make it the default for now").wait_for()
    line.get_by_role("button", name="Roll back to 1.0…").click()
    page.get_by_role("dialog").get_by_text("instead of 2.0").wait_for()
    confirm(page, "Make default")
    assert shared.describe("shop")["modelVersion"] == "1.0"
    shared.manage("DELETE", "/models/shop/2.0")
    shared.manage("DELETE", "/models/shop/1.0")


def test_a_model_without_workers_is_scaled_where_it_is_told(look, shared):
    model = shared.need("idle", "echo")
    assert shared.manage("PUT", f"/models/{model}", min_worker=0, max_worker=0, synchronous="true").ok
    page = look().page
    opened(headline(page, "idle 1.0 has no workers")).get_by_role("button", name="Scale…").click()
    dialog = page.get_by_role("dialog", name="Scale idle 1.0")
    dialog.get_by_role("spinbutton", name="Workers").fill("1")
    confirm(page, "Scale")
    page.get_by_role("row", name=re.compile("^idle 1.0")).get_by_text("ready", exact=False).wait_for()
    until(lambda: len(shared.ready(model)) == 1, "it is back")
    shared.manage("DELETE", f"/models/{model}")


# -- what it does --------------------------------------------------------------------------------


def test_workers_are_scaled(echo, shared):
    echo.get_by_role("button", name="Scale…").click()
    dialog = echo.get_by_role("dialog", name="Scale echo 1.0")
    dialog.get_by_role("spinbutton", name="Workers").fill("2")
    dialog.get_by_text("1 more worker is started.").wait_for()
    confirm(echo, "Scale")
    until(lambda: len(shared.ready("echo")) == 2, "there are two")
    tab(echo, "Workers")
    echo.get_by_text("2 of 2 ready").wait_for()
    echo.get_by_role("button", name="Scale…").click()
    dialog.get_by_role("spinbutton", name="Workers").fill("1")
    dialog.get_by_text("1 worker ends after the running batch").wait_for()
    confirm(echo, "Scale")
    until(lambda: len(shared.workers("echo")) == 1, "there is one")


def test_what_the_server_refuses_stays_in_the_dialog(echo):
    echo.get_by_role("button", name="Scale…").click()
    dialog = echo.get_by_role("dialog")
    dialog.get_by_role("spinbutton", name="Workers").fill("100000")
    dialog.get_by_role("button", name="Scale", exact=True).click()
    alert = dialog.get_by_role("alert")
    alert.wait_for()
    assert "It was not done." in alert.text_content() and "max_workers" in alert.text_content()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")


def test_another_version_becomes_the_default_and_one_is_removed(look, shared):
    shared.register(shared.store.mar("twins", "echo", version="1.0"))
    shared.register(shared.store.mar("twins", "echo", version="2.0"))
    page = look("#/model/twins/2.0").page
    page.get_by_role("button", name="Make default…").click()
    page.get_by_role("dialog").get_by_text("instead of 1.0").wait_for()
    confirm(page, "Make default")
    assert shared.describe("twins")["modelVersion"] == "2.0"
    page.get_by_role("link", name="1.0", exact=True).click()
    page.get_by_role("heading", name="twins 1.0").wait_for()
    page.get_by_role("button", name="Unregister…").click()
    page.get_by_role("dialog").get_by_text("answered with 404").wait_for()
    confirm(page, "Unregister")
    page.get_by_role("heading", name="Models").wait_for()
    assert shared.manage("GET", "/models/twins/1.0").status_code == 404
    assert shared.manage("GET", "/models/twins/2.0").status_code == 200
    shared.manage("DELETE", "/models/twins/2.0")


def test_a_slider_moves_shares_and_keeps_the_rules(look, shared):
    for version in ("1.0", "2.0"):
        shared.register(shared.store.mar("shared", "echo", version=version))
    url, rule = shared.url("/models/shared/traffic", "management"), {"errors": "+1%", "after": 200}
    requests.put(url, json={"shares": {"1.0": 100, "2.0": 0}, "return": rule}, timeout=ASK_SECONDS).raise_for_status()
    page = look("#/model/shared/2.0").page
    page.get_by_label("Share of version 2.0 in percent").fill("30")
    page.get_by_role("row", name=re.compile("Version 1.0")).get_by_text("70 %").wait_for()
    page.get_by_role("button", name="Change shares…").click()
    page.get_by_role("dialog").get_by_text("1.0 gets 70 %, 2.0 gets 30 %").wait_for()
    page.get_by_role("dialog").get_by_text("A version goes back by itself: errors +1%").wait_for()
    confirm(page, "Change")
    split = shared.manage("GET", "/models/shared/traffic").json()
    assert (split["shares"], split["return"]["errors"]) == ({"1.0": 70, "2.0": 30}, "+1%")
    page.get_by_role("heading", name="shared 2.0").get_by_text("30 % of traffic").wait_for()
    requests.delete(url, timeout=ASK_SECONDS)
    for version in ("2.0", "1.0"):
        shared.manage("DELETE", f"/models/shared/{version}")


def test_a_model_is_registered(look, shared):
    shared.store.mar("newcomer", "echo")
    page = look().page
    page.get_by_role("button", name="Register…").click()
    page.get_by_label("Archive, file or address").fill("newcomer.mar")
    confirm(page, "Register")
    page.get_by_role("row", name=re.compile("^newcomer 1.0")).get_by_text("ready").wait_for()
    shared.manage("DELETE", "/models/newcomer")


def test_a_live_setting_is_changed(echo, shared):
    tab(echo, "Settings")
    dialog = echo.get_by_role("dialog")
    for setting, value, why in [
        ("sizes", "many", "must be a list"),
        ("max_latency_ms", "soon", "must be a whole number"),
    ]:
        echo.get_by_role("button", name=f"Change {setting}").click()
        dialog.get_by_role("textbox", name=setting).fill(value)
        dialog.get_by_role("button", name="Change", exact=True).click()
        dialog.get_by_role("alert").get_by_text(why).wait_for()
        dialog.get_by_role("button", name="Cancel").click()
    echo.get_by_role("button", name="Change max_batch_size").click()
    dialog.get_by_role("spinbutton", name="max_batch_size").fill("7")
    confirm(echo, "Change")
    assert shared.manage("GET", "/models/echo/batching").json()["maxBatchSize"] == 7
    echo.get_by_role("button", name="Change policy").click()
    dialog.get_by_label("policy").select_option("opportunistic")
    confirm(echo, "Change")
    assert shared.manage("GET", "/models/echo/batching").json()["policy"] == "opportunistic"
    tab(echo, "Overview")
    echo.get_by_role("list", name="What happened in this time").get_by_text("a setting was changed").first.wait_for()
    shared.manage("PUT", "/models/echo", batch_size=1, policy="adaptive")


def test_the_log_level_is_changed(look, shared):
    page = look().page
    page.get_by_role("button", name="Change the log level").click()
    level = page.get_by_role("dialog").get_by_role("combobox", name="Log level")
    level.fill("loud")
    page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("alert").wait_for()
    level.fill("debug")
    page.get_by_text("set it back when you are done").wait_for()
    confirm(page, "Change")
    assert shared.manage("GET", "/log-level").json()["level"] == "debug"
    page.locator("dd", has_text=re.compile("^debug")).wait_for()
    requests.put(shared.url("/log-level", "management"), json={"level": "info"}, timeout=60)


def test_log_lines_are_shown_and_found(look, shared):
    page = look("#/logs").page
    lines = page.get_by_role("list", name="Log lines, newest last")
    lines.get_by_role("listitem").first.wait_for()
    shared.register(shared.store.mar("chatty", "echo"))
    lines.get_by_text(re.compile("chatty")).first.wait_for()
    page.get_by_role("searchbox", name="Text").fill("chatty")
    until(lambda: all("chatty" in one for one in lines.get_by_role("listitem").all_text_contents()), "only these")
    page.get_by_role("combobox", name="Level").select_option("error")
    page.get_by_text("No lines with “chatty” of this level yet.").wait_for()
    shared.manage("DELETE", "/models/chatty")


APPLICATION = """
import jitney


@jitney.batch
def lengths(word: list[str]) -> list[int]:
    return [len(one) for one in word]


class Letters:
    lengths = jitney.depends(lengths)

    @jitney.endpoint
    async def predict(self, text: str) -> int:
        return await self.lengths.remote(text)
"""


@pytest.mark.parametrize("width", [1280, PHONE])
def test_the_parts_of_an_application_are_drawn(chromium, start, tmp_path, width):
    (tmp_path / "letters.py").write_text(APPLICATION)
    server = start("serve", "letters.py:Letters", cwd=tmp_path)
    seen = open_page(chromium, server.url("/dashboard", "management"), width=width)
    graph = seen.page.get_by_role("group", name="The parts of Letters/1.0: Letters calls lengths")
    graph.get_by_role("link", name=re.compile("lengths.*ready")).wait_for()
    assert len(graph.locator("path.call").all()) == 1
    assert seen.fits()
    graph.get_by_role("link", name=re.compile("^lengths")).click()
    seen.page.get_by_role("heading", name="lengths 1.0").wait_for()
    current = seen.page.get_by_role("region", name="Parts of Letters/1.0").locator("[aria-current=true]")
    assert "lengths" in current.text_content()
    assert seen.complaints == []
    seen.page.close()


# -- how it behaves ------------------------------------------------------------------------------


def test_a_key_is_asked_for_and_kept_for_the_tab(chromium, start, store, tmp_path):
    server = start("serve", store.mar("echo"), "--token-auth", cwd=tmp_path, wait_for_workers=False)
    key = json.loads((tmp_path / "key_file.json").read_text())["management"]["key"]
    seen = open_page(chromium, server.url("/dashboard", "management"))
    page = seen.page
    page.get_by_role("heading", name="This server asks for a key").wait_for()
    page.get_by_label("Management key").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").get_by_text("The key was not taken.").wait_for()
    page.get_by_label("Management key").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("row", name=re.compile("^echo 1.0")).get_by_text("ready").wait_for()
    page.reload()
    page.get_by_role("link", name="echo", exact=True).click()
    page.get_by_role("button", name="Scale…").click()
    page.get_by_role("dialog").get_by_role("spinbutton", name="Workers").fill("2")
    confirm(page, "Scale")
    headers = {"Authorization": f"Bearer {key}"}
    described = until(
        lambda: requests.get(server.url("/models/echo", "management"), headers=headers, timeout=60).json()[0],
        "it answers",
    )
    assert described["minWorkers"] == 2
    page.close()
    again = open_page(chromium, server.url("/dashboard", "management"))
    again.page.get_by_role("heading", name="This server asks for a key").wait_for()
    again.page.close()


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_everything_without_scrolling_sideways(look, shared, dark):
    with clients(shared, "echo", 2):
        seen = look(width=PHONE, dark=dark)
        page = seen.page
        views = [(f"#/model/echo/1.0/{tab}", there) for tab, there in TABS.items()]
        for hash, there in [("#/", "Server"), *views, ("#/logs", "Log")]:
            page.goto(shared.url(f"/dashboard{hash}", "management"))
            page.get_by_role("heading", name=there, exact=True).first.wait_for()
            assert seen.fits(), hash
        page.goto(shared.url("/dashboard#/model/echo/1.0", "management"))
        page.get_by_role("button", name="Scale…").click()
        box = page.get_by_role("dialog").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE
    assert lightness(page) < 0.3 if dark else lightness(page) > 0.8


def test_colours_can_be_chosen(look):
    page = look().page
    assert lightness(page) > 0.8
    page.get_by_role("button", name="Colours: auto. Change to dark").click()
    until(lambda: lightness(page) < 0.3, "it is dark")
    page.reload()
    until(lambda: lightness(page) < 0.3, "it is still dark")
    page.get_by_role("button", name="Colours: dark. Change to light").click()
    until(lambda: lightness(page) > 0.8, "it is light")


def lightness(page: Any) -> float:
    """Of the ground, 0 to 1."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 / 255


def test_everything_can_be_done_with_the_keyboard(look, shared):
    page = look().page
    page.get_by_role("link", name="echo", exact=True).wait_for()
    press_to(page, "echo")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="echo 1.0").wait_for()
    press_to(page, "Scale…")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Scale…", "the focus is where it was"
    page.keyboard.press("Enter")
    dialog.wait_for()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    until(lambda: len(shared.ready("echo")) == 2, "there are two")
    shared.manage("PUT", "/models/echo", min_worker=1, max_worker=1, synchronous="true")


def press_to(page: Any, text: str) -> None:
    """Tab, until this has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"the Tab key does not lead to {text!r}")


def test_it_says_when_it_is_not_live_and_comes_back(chromium, start, store):
    server = start("serve", store.mar("echo"))
    seen = open_page(chromium, server.url("/dashboard", "management"))
    page = seen.page
    page.get_by_text("live", exact=True).wait_for()
    server.process.send_signal(signal.SIGSTOP)
    try:
        page.get_by_text(re.compile(r"^Not live: what is shown is \d+ s old\.")).wait_for()
    finally:
        server.process.send_signal(signal.SIGCONT)
    page.get_by_text("live", exact=True).wait_for()
    page.close()


def test_a_tab_that_nobody_sees_asks_nothing(look):
    seen = look()
    page = seen.page
    page.get_by_text("live", exact=True).wait_for()
    hide = "hidden => { Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    page.get_by_text("paused", exact=True).wait_for()
    asked = len(seen.asked)
    page.evaluate(hide, False)
    page.get_by_text("live", exact=True).wait_for()
    assert [url for url in seen.asked[asked:] if url.endswith("/overview/stream")], "it asks anew"


def test_the_display_can_be_held(echo, shared):
    echo.get_by_role("button", name="Hold").click()
    echo.get_by_text("The display is held").wait_for()
    echo.get_by_role("button", name="Go on").click()
    echo.get_by_text("The display is held").wait_for(state="detached")
    echo.get_by_role("button", name="2 min", exact=True).click()
    echo.get_by_role("heading", name="The last 2 minutes").wait_for()


def test_the_time_that_charts_show_is_chosen_and_drawn(echo, shared):
    echo.get_by_role("button", name="1 h", exact=True).click()
    echo.get_by_role("heading", name="The last hour").wait_for()
    echo.get_by_role("button", name="24 h", exact=True).click()
    echo.get_by_role("heading", name="The last day").wait_for()
    echo.get_by_role("button", name="10 min", exact=True).click()
    whole = echo.get_by_role("button", name="Whole range")
    zoomed = echo.get_by_role("heading", name=re.compile(r"^\d\d:\d\d:\d\d to \d\d:\d\d:\d\d$"))
    echo.get_by_role("button", name="Zoom in").click()
    zoomed.wait_for()
    whole.click()
    echo.get_by_role("heading", name="The last 10 minutes").wait_for()
    box = echo.get_by_role("img", name=re.compile("^Traffic:")).bounding_box()
    echo.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    echo.mouse.down()
    echo.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60)
    echo.mouse.up()
    zoomed.wait_for()
    whole.click()


def test_requests_that_failed_lead_to_the_form_and_to_their_lines_in_the_log(look, shared):
    model = shared.need("begetter", "begetter")
    headers = {"x-request-id": "lost-one", "x-own": "kept", "authorization": "Bearer secret"}
    assert shared.predict(model, b"not an order", headers=headers).status_code >= 500
    noted = shared.manage("GET", f"/models/{model}/requests").json()["failed"][0]
    assert (noted["id"], noted["batchItems"]) == ("lost-one", 1)
    assert "secret" not in json.dumps(noted) and "hasBody" not in noted
    assert shared.manage("GET", f"/models/{model}/1.0/requests/lost-one/body").status_code == 404
    page = look(f"#/model/{model}/1.0/requests").page
    row = page.get_by_role("row", name=re.compile("^lost-one"))
    row.get_by_role("button", name="Try again…").click()
    assert page.get_by_label("Path").input_value() == f"/predictions/{model}/1.0"
    assert "x-own: kept" in page.get_by_label("Headers, one to a line").input_value()
    page.get_by_label("or text").fill("not an order")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("region", name="Answer").get_by_text(re.compile("^5")).wait_for()
    row.get_by_role("link").click()
    page.get_by_text("the handler failed on request lost-one").wait_for()
    assert page.get_by_role("searchbox", name="Text").input_value() == "lost-one"
    shared.manage("DELETE", f"/models/{model}")


def test_the_body_of_a_request_that_failed_is_tried_again_where_it_is_kept(chromium, start, store):
    server = start("serve", store.mar("begetter"), "--keep-failed-bodies")
    for id, body in [("worded", b"not an order"), ("coded", b"\xff\xfe")]:
        assert server.predict("begetter", body, headers={"x-request-id": id}).status_code >= 500
    page = open_page(chromium, server.url("/dashboard#/model/begetter/1.0/requests", "management")).page
    page.get_by_role("row", name=re.compile("^worded")).get_by_role("button").click()
    until(lambda: page.get_by_label("or text").input_value() == "not an order", "the body is in the form")
    page.get_by_role("row", name=re.compile("^coded")).get_by_role("button").click()
    page.get_by_text("The body of that request, 2 bytes.").wait_for()
    page.get_by_role("button", name="Send").click()
    page.get_by_role("region", name="Answer").get_by_text(re.compile("^5")).wait_for()
    page.close()


def test_decisions_of_one_kind_open(look, shared):
    model = shared.need("decided", "curve", batch_size=8)
    page = look(f"#/model/{model}/1.0/batching").page
    with clients(shared, model, 4):
        decisions = page.get_by_role("list", name="Last decisions, newest first")
        group = decisions.locator("details").first
        group.wait_for()
        page.get_by_role("button", name="Hold").click()
        group.locator("summary").click()
        group.get_by_role("listitem").first.wait_for()
    shared.manage("DELETE", f"/models/{model}")
