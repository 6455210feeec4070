"""The rows of the table: each measures a served model and, by turns, the loop without a server."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import pathlib
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from on_gpu import bare, load, nets, pictures
from on_gpu.nets import Form
from on_gpu.session import JPEG, Bench
from server import Server

JSON = "application/json"
HERE = pathlib.Path(__file__).resolve().parent
ON_CPU = Form("cpu", "float32", False)
NUMBERS = 256
"""Different bodies of the definition."""
HELD = (1, 2, 3)
PAIR_CONNECTIONS = 192


def first(bench: Bench) -> dict:
    """TorchScript, large batches."""
    server = bench.script_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    found = bench.by_turns("first", server, bench.alike, JPEG, bench.plan.scaled(384), bench.script_loop)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return found


def many(bench: Bench) -> dict:
    """The same with pictures of many sizes."""
    server = bench.script_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return bench.by_turns("many", server, bench.many_sizes, JPEG, bench.plan.scaled(384), bench.script_loop)


def one(bench: Bench) -> dict:
    """One client."""
    return bench.by_turns("one", bench.script_server(), bench.alike, JPEG, 1, None)


def sixteen(bench: Bench) -> dict:
    """Sixteen clients."""
    return bench.by_turns("sixteen", bench.script_server(), bench.alike, JPEG, 16, None)


def none(bench: Bench) -> dict:
    """No settings of ours, over the faster of both memory formats in torch's own arithmetic."""
    plan, server = bench.plan, bench.plain_server()
    form = Form(plan.form.device, "float32", False)
    bench.check_pictures(server, plan.net, form)
    loops = [
        bare.script_loop(bench.weights(plan.net)[1], plan.scaled(128), replace(form, channels_last=last))
        for last in (False, True)
    ]
    loop = max(loops, key=lambda it: it.rate(0.5))
    return bench.by_turns("none", server, bench.alike, JPEG, plan.scaled(384), loop)


def pair(bench: Bench) -> dict:
    """Two models on one GPU, over the best of the numbers of batches that a worker may be told to hold at most."""
    plan, rounds = bench.plan, []
    for number in range(plan.rounds):
        found = {most: pair_rate(bench, bench.pair_server(most)) for most in (None, *HELD)}
        best = max(HELD, key=lambda most: found[most])
        rounds.append(
            {"per_s": found[None], "best_per_s": found[best], "best": best, "share": found[None] / found[best]}
        )
        print(f"  pair {number + 1}: {found}", file=sys.stderr, flush=True)
    return {"figures": {key: statistics.median(it[key] for it in rounds) for key in rounds[0]}, "rounds": rounds}


def pair_rate(bench: Bench, server: Server) -> float:
    """What both models of a server answer together, each with clients of its own."""
    plan = bench.plan

    def asked(model: str) -> float:
        path = f"/predictions/{model}"
        connections, warm_up = plan.scaled(PAIR_CONNECTIONS), max(plan.warm_up, 2.5)
        found = load.closed_loop_at(server.port(), bench.alike, JPEG, connections, plan.seconds, warm_up, path)
        return found["per_s"]

    with ThreadPoolExecutor() as generators:
        return sum(generators.map(asked, ("bench", "other")))


def starts(bench: Bench) -> dict:
    """The compiled model from nothing, and again."""
    bench.close()
    shutil.rmtree(bench.plan.work / "store", ignore_errors=True)
    bench.compiled_server()
    first_seconds = bench.started_seconds["compiled"]
    bench.close()
    bench.compiled_server()
    return {"figures": {"first_s": first_seconds, "second_s": bench.started_seconds["compiled"]}}


def compiled(bench: Bench) -> dict:
    """The compiled model, larger batches."""
    server = bench.compiled_server()
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    cache = kept(bench.plan.work)
    net, form = bench.net(bench.plan.net), bench.plan.form
    loop = bare.compiled_loop(net, bench.plan.scaled(256), form, cache)
    found = bench.by_turns("compiled", server, bench.alike, JPEG, bench.plan.scaled(768), loop)
    bench.check_pictures(server, bench.plan.net, bench.plan.form)
    return found


def kept(work: pathlib.Path) -> pathlib.Path | None:
    """A copy of what torch kept when the server compiled, so that the bare loop need not compile everything again."""
    caches = sorted((work / "store").glob("**/inductor"))
    if not caches:
        return None
    return pathlib.Path(shutil.copytree(caches[0].parent, work / "bare", dirs_exist_ok=True))


def cpu(bench: Bench) -> dict:
    """ResNet-18 on two processors, over decoding and model one after another; the clients share them."""
    script = bench.weights("resnet18")[1]
    config = {"batchSize": 8, "jitney": {"device": "cpu"}}
    source = nets.archive(bench.plan.work / "models" / "cpu", {}, config, script)
    with two_processors():
        server = bench.serve("cpu", source, 8)
        bench.check_pictures(server, "resnet18", ON_CPU)
        loop = bare.decoding_loop(script, pictures.files(bench.alike), 8, ON_CPU)
        return bench.by_turns("cpu", server, bench.alike, JPEG, 16, loop)


@contextlib.contextmanager
def two_processors() -> Iterator[None]:
    """Inside, this process and those that it starts have two processors."""
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, sorted(before)[:2])
    torch.set_num_threads(min(2, threads))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)


def definition(bench: Bench) -> dict:
    """A Python function with 10 ms of work on the device per batch."""
    burn = importlib.import_module("on_gpu.burn")
    env = {"BENCH_BURN_ROUNDS": str(burn.calibrated())}
    os.environ |= env
    server = bench.serve("definition", HERE / "burn.py:burn", burn.BATCH, env)
    numbers = [json.dumps({"number": number}).encode() for number in range(NUMBERS)]
    load.check(server, numbers, JSON, lambda at, it: it == at + 1)
    bodies = pictures.write(numbers, bench.plan.work / "bodies" / "numbers", "json")
    loop = bare.Loop(lambda: burn.burn(list(range(burn.BATCH))), burn.BATCH, bench.plan.form.device)
    return bench.by_turns("definition", server, bodies, JSON, 4 * burn.BATCH, loop)


def encoder(bench: Bench) -> dict:
    """Texts of many lengths, over a loop that pads 64 of them as they come."""
    examples = HERE.parent.parent / "examples"
    env = {"PYTHONPATH": f"{HERE.parent}:{examples}"}
    if bench.plan.share < 1:
        env["ENCODER_SHAPE"] = "2,128,2"
    os.environ |= env
    sys.path.append(str(examples))
    module = importlib.import_module("on_gpu.texts")
    server = bench.serve("encoder", HERE / "texts.py:Encoder", 1024, env)
    texts = module.short_texts()
    bodies = [json.dumps({"tokens": text}).encode() for text in texts]
    load.check(server, bodies[: module.TEXTS], JSON, lambda at, it: it == at)
    net = module.load()
    assert module.classes(net, texts[: module.TEXTS]) == list(range(module.TEXTS)), "the bare loop is wrong"
    batches = [texts[at : at + module.TEXTS] for at in range(0, len(texts), module.TEXTS)]
    for batch in batches:  # The first batch of a length is many times slower than the next ones.
        module.classes(net, batch)
    turn = itertools.cycle(batches)
    loop = bare.Loop(lambda: module.classes(net, next(turn)), module.TEXTS, bench.plan.form.device)
    folder = pictures.write(bodies, bench.plan.work / "bodies" / "texts", "json")
    found = bench.by_turns("encoder", server, folder, JSON, bench.plan.scaled(512), loop)
    load.check(server, bodies[: module.TEXTS], JSON, lambda at, it: it == at)
    return found


ROWS: dict[str, Callable[[Bench], dict]] = {
    row.__name__: row for row in (first, many, one, sixteen, none, pair, starts, compiled, encoder, definition, cpu)
}
"""In the order in which they run: those with the same server follow each other."""
