"""What it costs to hand bodies of 1 MiB from one process to another: `python bench/hand_over.py`.

CPU of both processes per body, for one body at a time and for eight, by way: the socket that workers have; one memory
file that both sides keep; a sealed memory file for every body, read or mapped. docs/adr/0019-large-bodies-stay-on-the-socket.md
says what follows from it. In the end the bodies lie in bytearrays that were used before, except where they are mapped.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import socket
import statistics
import struct
from collections.abc import Callable

BODY = 1 << 20
PIECES = [bytes([number]) * (BODY // 8) for number in range(8)]
"""As a server has read them from its client."""
ROUNDS, BODIES = 5, 200
F_ADD_SEALS, ALL_SEALS = 1033, 0xF
SEND_BUFFER = 512 << 10

Turn = Callable[[], bool]


def advance(views: list[memoryview], done: int) -> None:
    """Takes off what is done."""
    while views and done >= len(views[0]):
        done -= len(views.pop(0))
    if done:
        views[0] = views[0][done:]


def send_through_socket(sock: socket.socket, batch: int) -> Turn:
    def turn() -> bool:
        left = [memoryview(piece) for _ in range(batch) for piece in PIECES]
        while left:
            advance(left, sock.sendmsg(left[:64]))
        return True

    return turn


def receive_through_socket(sock: socket.socket, bodies: list[bytearray]) -> Turn:
    def turn() -> bool:
        left = [memoryview(body) for body in bodies]
        while left:
            received = sock.recvmsg_into(left, 0, socket.MSG_WAITALL)[0]
            if not received:
                return False
            advance(left, received)
        return True

    return turn


def send_through_kept_file(sock: socket.socket, batch: int) -> Turn:
    file = os.memfd_create("bodies")
    os.ftruncate(file, batch * BODY)
    socket.send_fds(sock, [b"f"], [file])

    def turn() -> bool:
        for at in range(batch):
            os.pwritev(file, PIECES, at * BODY)
        sock.sendall(b"b")
        return True

    return turn


def receive_through_kept_file(sock: socket.socket, bodies: list[bytearray]) -> Turn:
    [file] = socket.recv_fds(sock, 1, 1)[1]

    def turn() -> bool:
        if not sock.recv(1):
            return False
        for at, body in enumerate(bodies):
            os.preadv(file, [body], at * BODY)
        return True

    return turn


def send_sealed_files(sock: socket.socket, batch: int) -> Turn:
    def turn() -> bool:
        files = [os.memfd_create("body", os.MFD_ALLOW_SEALING) for _ in range(batch)]
        for file in files:
            os.writev(file, PIECES)
            fcntl.fcntl(file, F_ADD_SEALS, ALL_SEALS)
        socket.send_fds(sock, [b"b"], files)
        for file in files:
            os.close(file)
        return True

    return turn


def read_sealed_file(file: int, body: bytearray) -> None:
    os.preadv(file, [body], 0)


def map_sealed_file(file: int, body: bytearray) -> None:
    """Looks at one byte of every page and copies none."""
    with mmap.mmap(file, BODY, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        bytes(view[::4096])


def receive_sealed_files(use: Callable[[int, bytearray], None]) -> Callable[[socket.socket, list[bytearray]], Turn]:
    def receive(sock: socket.socket, bodies: list[bytearray]) -> Turn:
        def turn() -> bool:
            said, files, *_ = socket.recv_fds(sock, 1, len(bodies))
            for file, body in zip(files, bodies):
                use(file, body)
                os.close(file)
            return bool(said)

        return turn

    return receive


WAYS = {
    "the socket": (send_through_socket, receive_through_socket),
    "one memory file, kept": (send_through_kept_file, receive_through_kept_file),
    "a sealed memory file each, read": (send_sealed_files, receive_sealed_files(read_sealed_file)),
    "a sealed memory file each, mapped": (send_sealed_files, receive_sealed_files(map_sealed_file)),
}


def cpu_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e3


def measure(way: str, batch: int) -> tuple[float, float]:
    """CPU in ms per body of the sender and of the receiver."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    result, told = os.pipe()
    send, receive = WAYS[way]
    if os.fork() == 0:
        theirs.close()
        os.write(told, struct.pack("d", rounds_of(send(ours, batch), ours.recv, batch)))
        os._exit(0)
    ours.close()
    turn = receive(theirs, [bytearray(BODY) for _ in range(batch)])
    turns, before = 0, cpu_ms()
    while turn():
        theirs.sendall(b"k")
        turns += 1
    spent = (cpu_ms() - before) / (turns * batch)
    os.wait()
    return struct.unpack("d", os.read(result, 8))[0], spent


def rounds_of(turn: Turn, answered: Callable[[int], bytes], batch: int) -> float:
    rounds = []
    for _ in range(ROUNDS):
        before = cpu_ms()
        for _ in range(BODIES // batch):
            turn()
            answered(1)
        rounds.append((cpu_ms() - before) / BODIES)
    return statistics.median(rounds)


if __name__ == "__main__":
    print("| way | bodies at a time | sender, ms | receiver, ms | together |")
    print("|---|---|---|---|---|")
    for way in WAYS:
        for batch in (1, 8):
            sender, receiver = measure(way, batch)
            print(f"| {way} | {batch} | {sender:.3f} | {receiver:.3f} | **{sender + receiver:.3f}** |")
