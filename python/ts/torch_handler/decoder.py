"""A helper process that turns the bytes of images into pixels, for the handlers of one worker (see `decoders`).

It uses the socket that it inherits: a plan and an image in, pixels out, one after another, until the worker
exits. It imports PIL and nothing of torch, so that it starts at once and stays small, and it knows the two steps
nearly every transform begins with. It does not handle anything unusual (a broken
image, another mode, one too small for the crop): the worker decodes such an image itself, and reports its errors.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

from jitney.images import open_image

REQUEST = struct.Struct(">II")
"""Lengths of the plan (JSON) and of the image that follow."""
REPLY = struct.Struct(">BII")
"""Whether it worked, width and height; then three bytes for every pixel."""
WATCH_SECONDS = 5.0
UNSUPPORTED = REPLY.pack(0, 0, 0)


class Unsupported(Exception):
    """An image that the worker must decode itself."""


def pil_image() -> Any:
    """PIL, imported when there is an image: the worker imports this file too."""
    from PIL import Image

    return Image


def prepared(content: Any, plan: dict[str, Any]) -> Any:
    """An image as the plan's steps leave it."""
    images = pil_image()
    images.MAX_IMAGE_PIXELS = plan["pixels"]
    image = open_image(content)
    if image.mode != "RGB":
        if not plan["to_rgb"]:
            raise Unsupported
        image = image.convert("RGB")
    for name, *numbers in plan["steps"]:
        image = STEPS[name](image, *numbers)
    return image


def resize(image: Any, short: int) -> Any:
    """As torchvision's Resize does it: the shorter side becomes `short`, the longer one is cut to a whole number."""
    width, height = image.size
    longer = int(short * max(width, height) / min(width, height))
    size = (short, longer) if width <= height else (longer, short)
    return image if size == image.size else image.resize(size, pil_image().BILINEAR)


def center_crop(image: Any, height: int, width: int) -> Any:
    """As torchvision's CenterCrop does it where the image is large enough."""
    if image.size[0] < width or image.size[1] < height:
        raise Unsupported
    top, left = round((image.size[1] - height) / 2.0), round((image.size[0] - width) / 2.0)
    return image.crop((left, top, left + width, top + height))


STEPS: dict[str, Callable[..., Any]] = {"resize": resize, "center_crop": center_crop}


def answer(content: Any, plan: dict[str, Any]) -> bytes:
    """The reply to one image."""
    try:
        image = prepared(content, plan)
    except Exception:
        return UNSUPPORTED
    pixels: bytes = image.tobytes()
    return REPLY.pack(1, *image.size) + pixels


def receive(sock: socket.socket, size: int) -> bytearray:
    """So many bytes; raises EOFError when the other side is gone."""
    content, at = bytearray(size), 0
    view = memoryview(content)
    while at < size:
        count = sock.recv_into(view[at:])
        if count == 0:
            raise EOFError
        at += count
    return content


def wait_for_work(sock: socket.socket, parent: int) -> bool:
    """Waits for something to read; False when the worker has exited, even if another process holds its socket."""
    sock.settimeout(WATCH_SECONDS)
    while True:
        try:
            return bool(sock.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            if os.getppid() != parent:
                return False


def serve(sock: socket.socket) -> None:
    """Answers until the worker is gone."""
    parent, known, plan = os.getppid(), b"", {}
    while wait_for_work(sock, parent):
        sock.settimeout(None)
        plan_size, size = REQUEST.unpack(receive(sock, REQUEST.size))
        text, content = bytes(receive(sock, plan_size)), receive(sock, size)
        if text != known:
            known, plan = text, json.loads(text)
        sock.sendall(answer(content, plan))


def main() -> None:
    """Serves on the file descriptor named on the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        try:
            serve(sock)
        except (EOFError, ConnectionError):
            return


if __name__ == "__main__":
    main()
