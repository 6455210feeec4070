"""The adder with both origins: one program calls it through a Python handle and over HTTP at the same time.

Batches never mix the two kinds of callers unless the model sets `mix_origins=True`, so a model can
rely on the origin of its batches; both kinds are answered. Run it: `python both_origins.py`.
"""

from __future__ import annotations

import asyncio

import jitney
from adder import adder


async def main(handle: jitney.Handle, url: str) -> None:
    """Five calls of each kind, all under way together."""
    async with jitney.AsyncClient(url) as client:
        by_handle = [handle.remote(number) for number in range(5)]
        by_http = [client.predict("adder", {"number": 100 + number}) for number in range(5)]
        print("handle:", await asyncio.gather(*by_handle))
        print("HTTP:", await asyncio.gather(*by_http))


if __name__ == "__main__":
    with jitney.run(adder) as running:
        asyncio.run(main(running, running.url))
