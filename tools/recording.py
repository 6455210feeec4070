"""Records the first minute as a picture that moves: `JITNEY_BIN=target/release/jitney python3 tools/recording.py`.

The commands really run, in an empty folder. What they print, and when, becomes docs/pictures/first-minute.svg. Where
pictures do not move, it shows everything at once.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "first-minute.svg"
APP = """import jitney

@jitney.batch(max_batch_size=32, max_latency_ms=50)
def shout(text: list[str]) -> list[str]:
    return [one.upper() for one in text]
"""
CLIENT = (
    """curl -s -w '\\n%header{server-timing}\\n' http://127.0.0.1:8080/shout --json '{"text": "hello"}'""",
    "jitney bench http://127.0.0.1:8080/shout --connections 64 --duration 3s --body hello",
    "jitney status",
)
READY_SECONDS = 60
TYPED_SECONDS = 0.03
"""For a character."""
PAUSE_SECONDS = 1.2
"""After what a command has printed, so that it can be read."""
END_SECONDS = 6.0
COLUMNS, ROW, LEFT, TOP, CHARACTER = 108, 19, 18, 52, 7.8
COLOURS = {"typed": "#e6edf3", "printed": "#9fb3c8", "prompt": "#4fd1b5"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Line:
    """A line of the terminal, and when it is there."""

    text: str
    at: float
    typed: bool = False


def main() -> None:
    """Runs the commands and writes the picture."""
    program = Path(os.environ["JITNEY_BIN"]).resolve()
    with tempfile.TemporaryDirectory() as name:
        lines = recorded(program, Path(name))
    PICTURE.write_text(drawn(lines))
    print(f"{PICTURE.relative_to(ROOT)}: {len(lines)} lines")


def recorded(program: Path, folder: Path) -> list[Line]:
    """What is typed and printed, with its times in the picture."""
    (folder / "app.py").write_text(APP)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder), "NO_COLOR": "1"}
    lines: list[Line] = []
    now = show(lines, "cat app.py", APP, 0.5, 0.0)
    serve = "jitney serve app.py:shout"
    log = folder / "log"
    with log.open("w") as out:
        server = subprocess.Popen(serve.split(), cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        began = time.monotonic()
        while " is ready" not in log.read_text() and time.monotonic() < began + READY_SECONDS:
            time.sleep(0.05)
        now = show(lines, serve + " &", log.read_text(), now, time.monotonic() - began)
        for command in CLIENT:
            began = time.monotonic()
            told = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
            now = show(lines, command, told.stdout + told.stderr, now, time.monotonic() - began)
    finally:
        server.terminate()
        server.wait()
    return lines


def show(lines: list[Line], command: str, printed: str, now: float, took: float) -> float:
    """Adds a command and what it printed; returns when the next one is typed."""
    lines.append(Line(command, now, typed=True))
    now += TYPED_SECONDS * len(command) + min(took, 2.0)
    for text in ESCAPES.sub("", printed).rstrip().splitlines():
        lines += [Line(text[at : at + COLUMNS], now) for at in range(0, max(1, len(text)), COLUMNS)]
    return now + PAUSE_SECONDS


def drawn(lines: list[Line]) -> str:
    """The picture: each line appears at its time, a typed one letter by letter; then all begins again."""
    end = lines[-1].at + END_SECONDS
    height = TOP + ROW * len(lines) + 10
    width = round(LEFT * 2 + CHARACTER * (COLUMNS + 2))
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>A function of four lines is served, called, measured and looked at</title>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#10161d"/>',
        *(f'<circle cx="{22 + 20 * at}" cy="22" r="6" fill="#33404d"/>' for at in range(3)),
        f'<rect width="0" height="0"><animate id="all" attributeName="x" begin="0s;all.end" dur="{end:.1f}s"/></rect>',
        '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13">',
    ]
    for number, line in enumerate(lines):
        pieces.append(row(line, number, TOP + ROW * number))
    return "\n".join([*pieces, "</g>", "</svg>", ""])


def shown(text: str) -> str:
    """A text whose spaces stay: browsers disagree about the ways to say that."""
    return html.escape(text).replace(" ", "\N{NO-BREAK SPACE}")


def row(line: Line, number: int, y: int) -> str:
    """One line of the picture."""
    if not line.typed:
        hidden = f'<set attributeName="opacity" to="0" begin="all.begin" end="all.begin+{line.at:.2f}s"/>'
        return f'<text x="{LEFT}" y="{y}" fill="{COLOURS["printed"]}">{shown(line.text)}{hidden}</text>'
    width = round(CHARACTER * (len(line.text) + 3))
    begin, typing = f"all.begin+{line.at:.2f}s", TYPED_SECONDS * len(line.text)
    grow = f'<set attributeName="width" to="0" begin="all.begin" end="{begin}"/>'
    grow += f'<animate attributeName="width" from="0" to="{width}" begin="{begin}" dur="{typing:.2f}s"/>'
    area = f'<rect x="{LEFT}" y="{y - ROW}" width="{width}" height="{ROW + 6}">{grow}</rect>'
    clip = f'<clipPath id="typed{number}">{area}</clipPath>'
    prompt = f'<tspan fill="{COLOURS["prompt"]}">$ </tspan>'
    text = f'<text x="{LEFT}" y="{y}" fill="{COLOURS["typed"]}">{prompt}{shown(line.text)}</text>'
    return f'{clip}<g clip-path="url(#typed{number})">{text}</g>'


if __name__ == "__main__":
    main()
