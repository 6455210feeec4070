"""Endpoints as tools of a Model Context Protocol server, asked by the official client: `make test-mcp`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import requests

from harness.client import together
from harness.server import Server

mcp = pytest.importorskip("mcp", reason="NO MCP SDK HERE (make test-mcp)")
pytestmark = pytest.mark.heavy

SHOP = '''
from dataclasses import dataclass

import jitney


@dataclass
class Order:
    item: str
    count: int = 1


class Shop:
    """Prices of a small shop."""

    @jitney.batch(max_batch_size=8)
    def price(self, item: list[str], count: list[int] = 1) -> list[float]:
        """What so many of an item cost."""
        return [2.5 * many if one == "tea" else jitney.BadInput(f"no {one} here") for one, many in zip(item, count)]

    @jitney.endpoint
    def total(self, orders: list[Order]) -> dict[str, float]:
        return {"total": sum(2.5 * one.count for one in orders)}

    @jitney.endpoint
    def spell(self, word: str):
        yield from word

    @jitney.endpoint(raw=True)
    def page(self, request: jitney.HttpRequest):
        return jitney.Response("a page")


tools = jitney.mcp(Shop)
'''


@pytest.fixture(scope="module")
def server(binary: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shop and its tools."""
    home = tmp_path_factory.mktemp("mcp")
    (home / "shop.py").write_text(SHOP)
    server = Server(binary, home / "server", ["serve", "shop.py:tools"], cwd=home)
    yield server.started()
    server.end()


def ask(server: Server, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers of tools."""

    async def asked() -> list[Any]:
        async with mcp.Client(server.url("/mcp")) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(asked())


def test_tools_have_the_names_texts_and_types_of_the_endpoints(server: Server) -> None:
    async def listed() -> list[Any]:
        async with mcp.Client(server.url("/mcp")) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(tools) == {"price", "total", "spell"}, "a raw endpoint takes HTTP requests"
    price = tools["price"]
    assert price.description == "What so many of an item cost."
    types = {name: kind["type"] for name, kind in price.input_schema["properties"].items()}
    assert (types, price.input_schema["required"]) == ({"item": "string", "count": "integer"}, ["item"])
    assert "Order" in tools["total"].input_schema["$defs"]


def test_a_call_is_answered_as_text_and_as_a_value(server: Server) -> None:
    orders = {"orders": [{"item": "tea", "count": 3}, {"item": "tea"}]}
    price, total, word = ask(server, ("price", {"item": "tea"}), ("total", orders), ("spell", {"word": "abc"}))
    assert (price.content[0].text, price.structured_content) == ("2.5", {"result": 2.5})
    assert total.structured_content == {"total": 10.0}
    assert (word.content[0].text, word.is_error) == ("abc", False)


def test_what_goes_wrong_is_told_to_who_asked(server: Server) -> None:
    missing, unknown, wrong = ask(server, ("price", {"item": "milk"}), ("sell", {}), ("price", {}))
    assert missing.is_error and missing.content[0].text == "no milk here"
    assert unknown.is_error and "price, total, spell" in unknown.content[0].text
    assert wrong.is_error and "item" in wrong.content[0].text


def test_clients_ask_side_by_side(server: Server) -> None:
    answers = together(
        [lambda count=count: ask(server, ("price", {"item": "tea", "count": count})) for count in range(8)]
    )
    assert [answer.structured_content["result"] for (answer,) in answers] == [2.5 * count for count in range(8)]


def test_a_page_that_has_itself_resolved_to_this_machine_is_rejected(server: Server) -> None:
    headers = {"Host": "evil.example", "Accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert requests.post(server.url("/mcp"), json=call, headers=headers, timeout=120).status_code == 421
