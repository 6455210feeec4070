"""Values that are views of the memory their batch was received into, for handlers that take them."""

from __future__ import annotations

import pytest
import wire

VIEWS = """
class Views:
    def initialize(self, context):
        self.kept = []

    def takes_views(self):
        return {takes}

    def handle(self, data, context):
        self.kept.append(data[0]["body"])  # What it keeps stays as it is, whatever comes later.
        del self.kept[:-3]
        kinds = {{type(row["body"]).__name__ for row in data}}
        return [",".join(sorted(kinds)).encode() + b" " + bytes(self.kept[0][:1]) for row in data]
"""


@pytest.mark.parametrize(("takes", "kind"), [("True", b"memoryview"), ("False", b"bytearray"), ("None", b"bytearray")])
@pytest.mark.parametrize("size", [20_000, 300_000])
def test_large_values_are_views_of_their_batch_where_the_handler_takes_them(worker, takes, kind, size):
    one = worker(VIEWS.format(takes=takes))
    sent = [bytes([letter]) * size for letter in b"abcdefgh"]
    for at, first in enumerate(sent):
        (reply, other) = one.ask(wire.bodies(first, b"other" * 5000), at)
        oldest = sent[max(0, at - 2)][:1]
        assert (reply["body"], other["body"]) == (kind + b" " + oldest,) * 2


def test_small_values_are_copied_also_for_handlers_that_take_views(worker):
    one = worker(VIEWS.format(takes="True"))
    assert one.ask(wire.bodies(b"small"))[0]["body"] == b"bytearray s"


def test_views_of_text_and_json_are_read_as_usual(worker):
    one = worker("""
        class Views:
            def takes_views(self):
                return True

            def handle(self, data, context):
                return [type(row["body"]).__name__ + str(len(row["body"])) for row in data]
    """)
    text = b"x" * 40_000
    items = [
        wire.item([("body", "text/plain", text)]),
        wire.item([("body", "application/json", b'"' + text + b'"')]),
        wire.item([("body", "", text)]),
    ]
    assert [reply["body"] for reply in one.ask(items)] == [b"str40000", b"str40000", b"memoryview40000"]
