"""What the rows share: models, pictures, the one server that runs at a time, and measuring by turns."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import torch

from on_gpu import bare, load, nets, pictures
from on_gpu.nets import Form
from on_gpu.tracing import traced
from on_gpu.watch import Watch
from server import Server

JPEG = "image/jpeg"
STARTUP_SECONDS = 900
LOG_LINES = 16
"""What the server says while it starts, such as why there are no graphs."""


@dataclass(frozen=True)
class Plan:
    """What was asked for on the command line."""

    form: Form
    net: str
    rounds: int
    seconds: float
    warm_up: float
    share: float
    """Of the sizes and connections of the table: 1, or less for a try-out on a small machine."""
    sizes: tuple[int, ...]
    """Those of the compiled model."""
    kinds: int
    work: pathlib.Path
    trace: tuple[str, ...]

    def scaled(self, number: int) -> int:
        """A batch size or a number of connections."""
        return max(1, round(number * self.share))


class Bench:
    """Models, pictures and the one server that runs at a time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.open: tuple[str, ExitStack, Server] | None = None
        self.started_seconds: dict[str, float] = {}

    # -- models -----------------------------------------------------------------------------------

    @cached_property
    def alike(self) -> pathlib.Path:
        """A folder of JPEGs of 500 x 400."""
        return self.bodies(f"alike-{self.plan.kinds}", lambda: pictures.alike(self.plan.kinds))

    @cached_property
    def many_sizes(self) -> pathlib.Path:
        """A folder of JPEGs of many sizes."""
        return self.bodies(f"many-{self.plan.kinds}", lambda: pictures.many_sizes(self.plan.kinds))

    def bodies(self, name: str, make: Callable[[], list[bytes]]) -> pathlib.Path:
        """A folder of bodies, made once."""
        folder = self.plan.work / "bodies" / name
        return folder if folder.is_dir() else pictures.write(make(), folder, "jpg")

    def known(self) -> list[bytes]:
        """The pictures that the net can tell apart, in the order of its classes."""
        return pictures.files(self.alike) + pictures.files(self.many_sizes)

    def weights(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        """State dict and TorchScript program of a made-up net."""
        folder = self.plan.work / f"{name}-{self.plan.kinds}"
        state, script = folder / "state.pt", folder / "script.pt"
        if not script.exists():
            folder.mkdir(parents=True, exist_ok=True)
            net = nets.made_up(name, nets.prepared(self.known()), self.plan.form.device)
            torch.save(net.state_dict(), state)
            nets.save_script(net, script)
        return state, script

    def classes(self, name: str, form: Form) -> list[int]:
        """The class of each picture, by the bare model with Pillow."""
        script, told = self.weights(name)[1], self.plan.work / f"{name}-{self.plan.kinds}" / f"{form.precision}.json"
        if not told.exists():
            net = form.of(torch.jit.load(str(script), map_location=form.device))
            told.write_text(json.dumps(nets.top_classes(net, nets.prepared(self.known()), form)))
        found = json.loads(told.read_text())
        assert len(set(found)) > len(found) * 0.9, f"the net cannot tell the pictures apart: {found}"
        return found

    def net(self, name: str) -> torch.nn.Module:
        """The net itself."""
        net = getattr(nets.torchvision.models, name)(weights=None)
        net.load_state_dict(torch.load(self.weights(name)[0]))
        return net.eval()

    @cached_property
    def script_loop(self) -> bare.Loop:
        """The bare graph loop over the TorchScript program."""
        return bare.script_loop(self.weights(self.plan.net)[1], self.plan.scaled(128), self.plan.form)

    # -- servers ----------------------------------------------------------------------------------

    def serve(
        self,
        name: str,
        source: pathlib.Path,
        batch: int,
        env: dict[str, str] | None = None,
        beside: dict[str, pathlib.Path] | None = None,
    ) -> Server:
        """The server of this name, with other models beside its own: the one that runs, or a fresh one instead of it."""
        if self.open is not None and self.open[0] == name:
            return self.open[2]
        self.close()
        stack = ExitStack()
        store = self.plan.work / "store"
        store.mkdir(parents=True, exist_ok=True)
        flags = ["--python", sys.executable, "--queue", str(4 * batch + 1000), "--model-store", str(store)]
        flags += ["--startup-timeout", str(STARTUP_SECONDS), "--response-timeout", str(STARTUP_SECONDS)]
        others = beside or {}
        flags = [*(f"{other}={path}" for other, path in others.items()), *flags]
        server = stack.enter_context(Server(source, *flags, env=env))
        self.open = (name, stack, server)
        self.started_seconds[name] = max(server.wait_until_ready(STARTUP_SECONDS, one) for one in ("bench", *others))
        print(f"  {name} is ready after {self.started_seconds[name]:.1f} s", file=sys.stderr, flush=True)
        print(server.tail(LOG_LINES), file=sys.stderr, flush=True)
        return server

    def close(self) -> None:
        """Ends the server that runs."""
        if self.open is not None:
            stack, self.open = self.open[1], None
            stack.close()

    def script_server(self) -> Server:
        """Stock `image_classifier` with a TorchScript program."""
        batch = self.plan.scaled(128)
        config = {"batchSize": batch, "jitney": self.plan.form.settings()}
        script = self.weights(self.plan.net)[1]
        return self.serve("script", nets.archive(self.plan.work / "models" / "script", {}, config, script), batch)

    def pair_server(self, most: int | None) -> Server:
        """Two models as that of `script_server`, `bench` and `other`; their workers hold at most so many batches."""
        batch = self.plan.scaled(128)
        held = {} if most is None else {"overlap": most}
        config = {"batchSize": batch, "jitney": self.plan.form.settings() | held}
        script = self.weights(self.plan.net)[1]
        source = nets.archive(self.plan.work / "models" / f"pair-{most}", {}, config, script)
        return self.serve(f"pair-{most}", source, batch, beside={"other": source})

    def plain_server(self) -> Server:
        """The same archive as of `script_server`, without any setting of ours."""
        batch = self.plan.scaled(128)
        folder, script = self.plan.work / "models" / "plain", self.weights(self.plan.net)[1]
        return self.serve("plain", nets.archive(folder, {}, {"batchSize": batch}, script), batch)

    def compiled_server(self) -> Server:
        """The same with a model file that is compiled."""
        batch = self.plan.scaled(256)
        sizes = sorted({self.plan.scaled(size) for size in self.plan.sizes})
        config = {
            "batchSize": batch,
            "batching": {"sizes": sizes},
            "pt2": {"compile": {"enable": True}},
            "jitney": self.plan.form.settings(),
        }
        files = {"classifier.py": nets.eager_source(self.net(self.plan.net))}
        state = self.weights(self.plan.net)[0]
        return self.serve("compiled", nets.archive(self.plan.work / "models" / "compiled", files, config, state), batch)

    # -- measuring --------------------------------------------------------------------------------

    def check_pictures(self, server: Server, net: str, form: Form) -> None:
        """Every picture is given the class that the bare model gives it."""
        classes = self.classes(net, form)
        load.check(server, self.known(), JPEG, lambda at, it: next(iter(it)) == str(classes[at]))

    def by_turns(
        self, row: str, server: Server, bodies: pathlib.Path, kind: str, connections: int, loop: bare.Loop | None
    ) -> dict:
        """Rounds of the bare loop and of the served model; figures are medians."""
        plan = self.plan
        rounds = []
        warm_up = max(plan.warm_up, 2.0)
        for number in range(plan.rounds):
            found = {"bare_per_s": loop.rate(plan.seconds / 2)} if loop else {}
            with Watch(server, warm_up) as watch:
                found |= load.closed_loop(server, bodies, kind, connections, plan.seconds, warm_up)
            found["facts"] = {**watch.facts(), "generator": found.pop("generator")}
            rounds.append(found)
            warm_up = plan.warm_up
            shown = ", ".join(f"{key} {value:.1f}" for key, value in found.items() if key != "facts")
            print(f"  {row} {number + 1}: {shown}", file=sys.stderr, flush=True)
        if row in plan.trace:
            traced(row, server, plan.work, lambda: load.closed_loop(server, bodies, kind, connections, 6, 1))
        figures = {key: statistics.median(it[key] for it in rounds) for key in rounds[0] if key != "facts"}
        middle = sorted(rounds, key=lambda it: it["per_s"])[len(rounds) // 2]["facts"]
        if loop:
            figures["share"] = figures["per_s"] / figures["bare_per_s"]
        if "worker_cores" in middle:
            figures["worker_cores"] = statistics.median(it["facts"]["worker_cores"] for it in rounds)
        figures["copies"] = middle["copies"]
        return {"figures": figures, "facts": middle, "rounds": rounds}
