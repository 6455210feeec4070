"""The page to try models on, in a real browser: clicks, keys, files, streams, narrow screens, no other host."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests

from harness.browser import OpenPage, browser, open_page
from harness.server import Server

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs playwright and chromium: make test-browser"),
]

APP = '''
import base64
from dataclasses import dataclass
from typing import Literal

import jitney


@dataclass
class Choice:
    size: Literal["s", "m", "l"]
    often: int


PIXEL = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="


class Shop:
    @jitney.batch(max_batch_size=8, examples=[{"item": "tea", "count": 2}])
    def price(self, item: list[str], count: list[int] = 1) -> list[dict]:
        """What it costs.

        Prices hold for <b>today</b>.
        """
        return [
            jitney.Error(f"no {one}", status=404) if one == "nothing" else {"item": one, "euro": 2 * many}
            for one, many in zip(item, count)
        ]

    @jitney.endpoint
    def upload(self, file: bytes, name: str, note: str = "") -> str:
        return f"{name}: {len(file)} bytes {note or 'without a note'}"

    @jitney.endpoint
    def a_rather_long_name_that_hardly_fits_the_screen_of_a_small_telephone(self, text: str) -> str:
        return text

    @jitney.endpoint
    def choose(self, size: Literal["s", "m", "l"] = "m", often: int = 1) -> Choice:
        return Choice(size, often)

    @jitney.endpoint
    def raw(self) -> bytes:
        return bytes(300)

    @jitney.endpoint
    def pixel(self, request: jitney.Request) -> bytes:
        request.response_headers["content-type"] = "image/gif"
        return base64.b64decode(PIXEL)

    @jitney.endpoint
    def tell(self, words: int = 3):
        for at in range(words):
            yield f"word {at} "


def lonely(text: str) -> str:
    """Only one of its kind."""
    return text.upper()
'''

MODELS = ["app:Shop"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as chromium:
        yield chromium


@pytest.fixture
def docs(chromium: Any, served: Server) -> Iterator[OpenPage]:
    """The page, which must not complain whatever a test does with it."""
    seen = open_page(chromium, served.url("/docs"))
    yield seen
    assert seen.complaints == []
    assert all(url.startswith((served.urls["inference"], "data:", "blob:")) for url in seen.asked), seen.asked
    seen.page.close()


def unfold(seen: OpenPage, path: str) -> Any:
    """The card of an endpoint, opened."""
    card = seen.page.locator("details", has=seen.page.get_by_text(f"POST {path}", exact=True))
    card.locator("summary").first.click()
    return card


def answered(card: Any, status: str) -> Any:
    """The text of an answer, once it is there."""
    card.locator(".status", has_text=re.compile(f"^{status}")).wait_for()
    card.get_by_role("button", name="Send").and_(card.locator(":enabled")).wait_for()
    return card.locator("pre.output").text_content()


def test_a_click_sends_what_was_typed_and_shows_the_answer(docs):
    card = unfold(docs, "/Shop/price")
    body = card.get_by_label("Body (JSON)")
    assert body.input_value() == '{\n  "item": "tea",\n  "count": 2\n}'
    assert card.get_by_text("Prices hold for <b>today</b>.").is_visible()
    body.fill('{"item": "milk", "count": 21}')
    card.get_by_role("button", name="Send").click()
    assert answered(card, "200 OK") == '{\n  "item": "milk",\n  "euro": 42\n}'
    assert "batch" in card.locator(".timing").text_content()


def test_a_rejection_is_shown_as_one(docs):
    card = unfold(docs, "/Shop/price")
    card.get_by_label("Body (JSON)").fill('{"item": "tea", "count": "many"}')
    card.get_by_role("button", name="Send").click()
    assert "cannot be read as int" in answered(card, "400")
    assert card.locator(".status.bad").count() == 1
    docs.complaints = [one for one in docs.complaints if "400" not in one]  # The browser notes every such answer.


def test_everything_can_be_done_with_the_keyboard(docs):
    keyboard, card = docs.page.keyboard, docs.page.locator("details").first
    card.wait_for()
    while docs.page.evaluate("document.activeElement.tagName") != "SUMMARY":
        keyboard.press("Tab")
    keyboard.press("Enter")
    while docs.page.evaluate("document.activeElement.tagName") != "TEXTAREA":
        keyboard.press("Tab")
    keyboard.press("ControlOrMeta+a")
    keyboard.type('{"item": "ink"}')
    keyboard.press("Tab")
    assert docs.page.evaluate("document.activeElement.textContent") == "Send"
    keyboard.press("Enter")
    assert '"euro": 2' in answered(card, "200")
    keyboard.press("Shift+Tab")
    keyboard.press("ControlOrMeta+a")
    keyboard.type('{"item": "ink", "count": 5}')
    keyboard.press("ControlOrMeta+Enter")
    card.get_by_text('"euro": 10').wait_for()


def test_files_go_with_the_other_fields_of_their_form(docs, tmp_path):
    card = unfold(docs, "/Shop/upload")
    card.get_by_role("button", name="Send").click()
    assert card.locator(".status").count() == 0, "nothing is sent before the file is chosen"
    (tmp_path / "photo").write_bytes(b"x" * 5000)
    card.get_by_label("file").set_input_files(tmp_path / "photo")
    card.get_by_label("name").fill("cat")
    card.get_by_role("button", name="Send").click()
    assert answered(card, "200") == "cat: 5000 bytes without a note"
    card.get_by_label("note (optional)").fill("of mine")
    card.get_by_role("button", name="Send").click()
    card.get_by_text("cat: 5000 bytes of mine").wait_for()


def test_streams_pictures_and_bytes_are_shown_as_what_they_are(docs):
    tell = unfold(docs, "/Shop/tell")
    tell.get_by_role("button", name="Send").click()
    tell.get_by_text("word 0 word 1 word 2").wait_for()
    pixel = unfold(docs, "/Shop/pixel")
    pixel.get_by_role("button", name="Send").click()
    assert pixel.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    raw = unfold(docs, "/Shop/raw")
    raw.get_by_role("button", name="Send").click()
    with docs.page.expect_download() as coming:
        raw.get_by_text("Save 300 bytes").click()
    assert Path(coming.value.path()).read_bytes() == bytes(300)


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_shows_everything(chromium, served, dark):
    seen = open_page(chromium, served.url("/docs"), width=320, dark=dark)
    seen.page.locator("details").first.wait_for()
    for summary in seen.page.locator("summary").all():
        summary.click()
    card = seen.page.locator("details").first
    card.get_by_role("button", name="Send").click()
    assert answered(card, "200")
    assert seen.fits()
    assert seen.complaints == []
    ground = seen.page.evaluate("getComputedStyle(document.documentElement).colorScheme")
    assert ground == "light dark"
    seen.page.close()


def test_a_server_that_asks_for_a_key_is_told_it(chromium, start: Callable[..., Server], tmp_path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:lonely", "--token-auth", cwd=tmp_path, wait_for_workers=False)
    key = json.loads((tmp_path / "key_file.json").read_text())["inference"]["key"]
    seen = open_page(chromium, server.url("/docs"))
    seen.page.get_by_text("none that this key may use").wait_for()
    seen.page.get_by_label("Key for predictions").fill(key)
    seen.page.keyboard.press("Enter")
    card = seen.page.locator("details[open]")
    card.get_by_role("button", name="Send").click()
    assert answered(card, "200") == "TEXT"
    seen.page.close()


def test_models_stand_apart_with_choices_schemas_and_what_can_be_copied(docs):
    page = docs.page
    page.locator("h2").first.wait_for()
    assert page.locator("h2").all_text_contents() == ["Shop"]
    page.get_by_text("Shop by the Open Inference Protocol").wait_for()
    card = unfold(docs, "/Shop/choose")
    card.get_by_label("size").select_option("l")
    assert json.loads(card.get_by_label("Body (JSON)").input_value()) == {"size": "l", "often": 1}
    card.get_by_role("button", name="Send").click()
    assert answered(card, "200") == '{\n  "size": "l",\n  "often": 1\n}'
    card.get_by_text("The answer's schema").click()
    assert '"enum": [' in card.locator("details pre").text_content()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.get_by_role("button", name="Copy").first.click()
    card.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl ")


def test_a_server_without_models_says_so(chromium, start: Callable[..., Server], tmp_path: Path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:lonely", cwd=tmp_path)
    server.manage("DELETE", "/models/lonely")
    seen = open_page(chromium, server.url("/docs"))
    seen.page.get_by_text("No model is served here yet").wait_for()
    assert seen.complaints == []
    seen.page.close()


# -- the same on the dashboard ---------------------------------------------------------------------


@pytest.fixture
def form(chromium: Any, served: Server) -> Iterator[Any]:
    """The dashboard's form, which asks the management port only and must not complain."""
    seen = open_page(chromium, served.url("/dashboard#/model/Shop/1.0/requests", "management"))
    yield seen.page.get_by_role("region", name="Try it")
    assert seen.complaints == []
    assert all(url.startswith((served.urls["management"], "blob:")) for url in seen.asked), seen.asked
    assert seen.fits()
    seen.page.close()


def sent(form: Any, endpoint: str = "") -> Any:
    """The answer to what is in the form."""
    if endpoint:
        form.get_by_label("Endpoint").select_option(endpoint)
    form.get_by_role("button", name="Send").click()
    answer = form.get_by_role("region", name="Answer")
    answer.get_by_text(re.compile("^200")).wait_for()
    return answer


def test_the_dashboard_tries_a_model_with_its_types(form, tmp_path):
    form.get_by_label("Endpoint").select_option("/Shop/choose")
    form.get_by_label("size").select_option("l")
    sent(form).get_by_text('"size": "l"').wait_for()
    form.get_by_text("Schema of the body").click()
    form.get_by_text('"enum": [').wait_for()
    form.get_by_label("Endpoint").select_option("/Shop/upload")
    (tmp_path / "photo").write_bytes(b"x" * 5000)
    form.get_by_label("file").set_input_files(tmp_path / "photo")
    form.get_by_label("name", exact=True).fill("cat")
    sent(form).get_by_text("cat: 5000 bytes without a note").wait_for()
    sent(form, "/Shop/tell").get_by_text("word 0 word 1 word 2").wait_for()
    picture = sent(form, "/Shop/pixel").locator("img")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


def test_the_form_of_the_dashboard_needs_the_key_for_predictions(chromium, start: Callable[..., Server], tmp_path):
    (tmp_path / "app.py").write_text(APP)
    server = start("serve", "app:lonely", "--token-auth", cwd=tmp_path, wait_for_workers=False)
    keys = json.loads((tmp_path / "key_file.json").read_text())
    seen = open_page(chromium, server.url("/dashboard#/model/lonely/1.0/requests", "management"))
    seen.page.get_by_label("Management key").fill(keys["management"]["key"])
    seen.page.keyboard.press("Enter")
    form = seen.page.get_by_role("region", name="Try it")
    form.get_by_role("button", name="Send").click()
    form.get_by_label("Key for predictions").fill(keys["inference"]["key"])
    seen.page.keyboard.press("Enter")
    form.get_by_label("Body (JSON)").wait_for()
    sent(form).get_by_text("TEXT").wait_for()
    seen.page.close()


def test_other_sites_cannot_use_the_form(served):
    tried = served.url("/dashboard/try/Shop/price", "management")
    body = {"item": "tea"}
    assert requests.post(tried, json=body, timeout=60).json() == {"item": "tea", "euro": 2}
    foreign = requests.post(tried, json=body, headers={"Origin": "http://example.com"}, timeout=60)
    assert foreign.status_code == 403
    assert requests.post(served.url("/dashboard/try/models", "management"), timeout=60).status_code == 404


class EmptyPage(BaseHTTPRequestHandler):
    """A page of another site."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>another site</title>")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def site() -> Iterator[int]:
    """The port of another site, which has two names and so two origins."""
    web = ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage)
    Thread(target=web.serve_forever, daemon=True).start()
    yield web.server_address[1]
    web.shutdown()
    web.server_close()


FETCH = """async ([url, method, headers, body]) => {
  try {
    const answer = await fetch(url, {method, headers, body});
    return [answer.status, await answer.text(), answer.headers.get("x-request-id") !== null];
  } catch (error) {
    return [0, String(error), false];
  }
}"""


def test_a_page_of_an_allowed_origin_reads_answers_and_any_other_does_not(
    chromium, site: int, start: Callable[..., Server], tmp_path: Path
):
    (tmp_path / "app.py").write_text(APP)
    allowed, other = f"http://127.0.0.1:{site}", f"http://localhost:{site}"
    server = start("serve", "app:lonely", "--cors-allowed-origin", allowed, cwd=tmp_path)
    json_type, body = {"content-type": "application/json", "x-mine": "1"}, '{"text": "tea"}'
    asks = {
        "a request that needs no leave": [server.url("/lonely"), "POST", {"content-type": "text/plain"}, body],
        "a request that is asked for first": [server.url("/lonely"), "POST", json_type, body],
        "an error": [server.url("/lonely"), "POST", json_type, '{"wrong": 1}'],
        "management": [server.url("/models/lonely?min_worker=1", "management"), "PUT", {}, None],
    }
    for origin in (allowed, other):
        seen = open_page(chromium, origin)
        got = {name: seen.page.evaluate(FETCH, ask) for name, ask in asks.items()}
        seen.page.close()
        if origin == other:
            assert {tuple(one[::2]) for one in got.values()} == {(0, False)}, got
            continue
        assert got["a request that is asked for first"] == [200, "TEA", True], got
        assert got["an error"][0] == 400 and got["an error"][2], got
        assert got["management"][0] in (200, 202), got
        assert got["a request that needs no leave"][::2] == [200, True], got
