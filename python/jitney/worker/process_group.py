"""One logical worker of several processes, for models that torchrun would start (`torchrun` in model-config.yaml).

The process that the server started is rank 0. It starts the others, forwards every frame to them, and is the only one
whose answers count; so the server sees one worker. In a pipeline (`parallelType: pp`) rank 0 alone gets the batches, as
in TorchServe: it drives the others by its own means. When one rank ends all end, and the server starts the whole group
again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from jitney.worker.gpus import gpu_of_rank
from jitney.worker.protocol import (
    BATCH,
    CANCEL,
    HELLO,
    LOAD,
    LOAD_FAILED,
    LOADED,
    PROGRESS,
    STOP,
    Frame,
    FrameReader,
    decode_control,
    encode_control,
    send_frame,
)  # fmt: skip

FD_VARIABLE = "JITNEY_WORKER_FD"
PIPELINE = "pp"
PARALLEL_TYPES = (PIPELINE, "tp", "pptp", "custom")
RANKS_MAX = 64
WATCH_SECONDS = 1.0
EXIT_SECONDS = 2.0


class ProcessGroupError(Exception):
    """The configured group is impossible, or one of its ranks failed."""


def rank_count(spec: dict[str, Any]) -> int:
    """The number of processes in a model's configuration."""
    config = spec.get("model_yaml_config") or {}
    torchrun = config.get("torchrun")
    if not isinstance(torchrun, dict) or config.get("parallelType") not in PARALLEL_TYPES:
        return 1
    if torchrun.get("nnodes", 1) != 1:
        raise ProcessGroupError("torchrun.nnodes must be 1: a worker's processes live on one machine")
    count = torchrun.get("nproc-per-node", 1)
    if not isinstance(count, int) or not 1 <= count <= RANKS_MAX:
        raise ProcessGroupError(f"torchrun.nproc-per-node is {count!r}, not a number from 1 to {RANKS_MAX}")
    return count


def rank_environment(spec: dict[str, Any], ranks: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets for every process alike."""
    threads = spec["model_yaml_config"]["torchrun"].get("OMP_NUMBER_THREADS", 1)
    return {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
    }  # fmt: skip


def rank_variables(rank: int) -> dict[str, str]:
    """The variables that differ from rank to rank."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}


class ProcessGroup:
    """The other ranks, seen from rank 0."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._stopping = False
        self._members: list[RankProcess] = []

    def start(self) -> None:
        """Starts the other ranks if the configuration has any, and makes them load; those start none themselves."""
        ranks = 1 if "rank" in self._spec else rank_count(self._spec)
        if ranks == 1:
            return
        common = rank_environment(self._spec, ranks, free_port())
        for rank in range(1, ranks):
            self._members.append(RankProcess(rank, {**os.environ, **common, **rank_variables(rank)}))
        os.environ.update({**common, **rank_variables(0)})
        for member in self._members:
            member.load(self._spec)

    def reader(self, reader: FrameReader) -> FrameReader:
        """A reader that forwards the frames of rank 0 to the others."""
        return ForwardingReader(reader, self) if self._members else reader

    def wait_until_loaded(self) -> None:
        """Returns when every rank has loaded its part; from then on watches them."""
        for member in self._members:
            member.wait_until_loaded()
        for member in self._members:
            threading.Thread(target=self._watch, args=(member,), daemon=True).start()

    @property
    def shares_batches(self) -> bool:
        """Whether every rank gets all batches."""
        return bool(self._spec["model_yaml_config"].get("parallelType") != PIPELINE)

    def forward(self, frame: Frame) -> None:
        """Sends the others the frame that rank 0 got."""
        self._stopping = self._stopping or frame.kind == STOP
        if frame.kind == BATCH and not self.shares_batches:
            return
        for member in self._members:
            with contextlib.suppress(OSError):  # `_watch` notices that it ended.
                send_frame(member.sock, frame.kind, frame.count, frame.id, frame.parts())

    def _watch(self, member: RankProcess) -> None:
        """Discards a rank's answers; when it ends this process ends too."""
        with contextlib.suppress(Exception):
            while member.reader.read() is not None:
                pass
        if not self._stopping:
            print(f"rank {member.rank} ended, so the worker ends too", flush=True)
            os._exit(1)

    def close(self) -> None:
        """Ends the others; those that do not exit soon are killed."""
        self._stopping = True
        for member in self._members:
            member.end()


class RankProcess:
    """One other rank: its process and the stream to it."""

    def __init__(self, rank: int, environment: dict[str, str]) -> None:
        self.rank = rank
        self.sock, theirs = socket.socketpair()
        with theirs:
            environment[FD_VARIABLE] = str(theirs.fileno())
            command = [sys.executable, "-u", "-m", "jitney.worker"]
            self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        self.reader = FrameReader(self.sock)

    def load(self, spec: dict[str, Any]) -> None:
        """Sends it what to load; does not wait."""
        own = {"rank": self.rank, "gpu_id": gpu_of_rank(spec, self.rank), "gpu_ids": None, "calls": None}
        send_frame(self.sock, LOAD, 0, 0, (encode_control({**spec, **own}),))

    def wait_until_loaded(self) -> None:
        """Returns when it has loaded; raises its message if it failed."""
        for expected in (HELLO, LOADED):
            frame = self.reader.read()
            while frame is not None and frame.kind == PROGRESS:
                frame = self.reader.read()
            if frame is None:
                raise ProcessGroupError(f"rank {self.rank} ended while it loaded")
            if frame.kind == LOAD_FAILED:
                raise ProcessGroupError(f"rank {self.rank}: {decode_control(frame.payload).get('message')}")
            if frame.kind != expected:
                raise ProcessGroupError(f"rank {self.rank} sent a frame of kind {frame.kind}")

    def end(self) -> None:
        """Closes the stream, waits a moment, then kills it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        try:
            self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.sock.close()


class ForwardingReader(FrameReader):
    """Reads rank 0's frames and forwards them to the group."""

    def __init__(self, reader: FrameReader, group: ProcessGroup) -> None:
        self._inner, self._group = reader, group

    def fileno(self) -> int:
        """As the reader behind this one."""
        return self._inner.fileno()

    @property
    def buffered(self) -> bool:
        """As the reader behind this one."""
        return self._inner.buffered

    @property
    def can_poll(self) -> bool:
        """Frames are forwarded one by one."""
        return False

    def give_views(self) -> None:
        """As the reader behind this one."""
        self._inner.give_views()

    def read(self) -> Frame | None:
        """The next frame, after it was forwarded."""
        frame = self._inner.read()
        while frame is not None and frame.kind == CANCEL and self._group.shares_batches:
            frame = self._inner.read()  # Each rank would hear of it at another step of the model.
        self.frame_began = self._inner.frame_began
        if frame is not None and frame.kind in (BATCH, STOP):
            self._group.forward(frame)
        return frame


def free_port() -> int:
    """A port at which the ranks find each other."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def follow_parent() -> None:
    """Ends this process soon after rank 0 has ended, also while a handler runs or waits for other ranks."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
