"""The model of the soak: answers each row with a function of that row alone, and does what a row asks for first."""

import os
import zlib


def handle(data, context):
    """One answer per row."""
    return [answer(bytes(row["body"])) for row in data or []]


def answer(body):
    """The row's checksum and the row; or the end of the process, an exception, a large answer, many lines."""
    verb, _, argument = body.partition(b" ")
    if verb == b"die":
        os._exit(3)
    if verb == b"raise":
        raise ValueError(argument.decode())
    if verb == b"print":
        print("a line\n" * int(argument))
    if verb == b"large":
        return b"x" * int(argument)
    return b"%08x %s" % (zlib.crc32(body), body)
