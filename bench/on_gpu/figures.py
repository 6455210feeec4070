"""The table: what is measured, the bar beside it, and both as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Bar:
    """A line of the table, and how good its figure must be."""

    row: str
    key: str
    what: str
    before: str
    bar: float
    unit: str = ""
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Whether a figure is good enough."""
        return value <= self.bar if self.at_most else value >= self.bar


BARS = [
    Bar(
        "first",
        "share",
        "`image_classifier`, TorchScript ResNet-152, batch 128, 384 connections: of the bare graph loop",
        "0.21",
        0.80,
    ),
    Bar("first", "per_s", "the same, images/s", "1,592", 6100),
    Bar("first", "worker_cores", "the same, CPU cores used by the worker", "9.0", 2.5, at_most=True),
    Bar("first", "copies", "the same, copies of the model", "1", 1, at_most=True),
    Bar(
        "compiled",
        "share",
        "eager model file with compilation, batch 256, 768 connections: of the bare compiled loop",
        "-",
        0.72,
    ),
    Bar("compiled", "per_s", "the same, images/s", "-", 9200),
    Bar("many", "share", "pictures of many sizes, 300 to 1,000 pixels wide: of the bare graph loop", "-", 0.65),
    Bar("many", "per_s", "the same, images/s", "-", 5000),
    Bar("one", "p50_ms", "one connection, p50", "16.1 ms", 4, " ms", at_most=True),
    Bar("sixteen", "per_s", "16 connections, images/s", "673", 2300),
    Bar("sixteen", "p99_ms", "16 connections, p99", "32 ms", 12, " ms", at_most=True),
    Bar("none", "share", "no settings, batch 128, 384 connections, float32: of the faster bare graph loop", "-", 0.85),
    Bar("none", "per_s", "the same, images/s", "3,316", 3316),
    Bar(
        "pair",
        "share",
        "two such models on one GPU, 192 connections each: of the best of 1, 2 or 3 batches at most",
        "-",
        0.97,
    ),
    Bar("encoder", "share", "encoder of BERT-base shape, short texts: of a bare padded loop of batch 64", "-", 1.5),
    Bar("definition", "share", "definition with 10 ms of GPU work per batch of 64: of the bare loop", "-", 0.95),
    Bar("starts", "second_s", "second start of the compiled model, to ready", "-", 15, " s", at_most=True),
    Bar("cpu", "share", "CPU: ResNet-18, 16 connections: of the bare loop", "1.04 to 1.33", 1.3),
]

HEAD = "| what | before | bar | this build | bare loop | |\n|---|---|---|---|---|---|"


def table(rows: dict[str, dict]) -> str:
    """The table with what was measured; a row that was not has a dash."""
    return "\n".join([HEAD, *(line(bar, rows.get(bar.row, {})) for bar in BARS)])


def filled(page: str, table: str) -> str:
    """A page with this table between its marks."""
    before, rest = page.split("<!-- figures", 1)
    mark, rest = rest.split("-->\n", 1)
    return f"{before}<!-- figures{mark}-->\n{table}\n<!-- end of figures{rest.split('<!-- end of figures', 1)[1]}"


def line(bar: Bar, measured: dict) -> str:
    """One line of the table."""
    value = measured.get("figures", {}).get(bar.key)
    bare = measured.get("figures", {}).get("bare_per_s") if bar.key == "share" else None
    sign = "at most " if bar.at_most else ""
    cells = [bar.what, bar.before, f"{sign}{number(bar.bar)}{bar.unit}"]
    if value is None:
        cells += ["-", "", f"failed: {measured['failed']}" if "failed" in measured else ""]
    else:
        cells += [f"**{number(value)}{bar.unit}**", f"{number(bare)}/s" if bare else ""]
        cells.append("" if bar.met(value) else "missed")
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """As many digits as mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}".rstrip("0").rstrip(".")


def missed(rows: dict[str, dict]) -> list[str]:
    """Bars that were measured and not met."""
    told = []
    for bar in BARS:
        value = rows.get(bar.row, {}).get("figures", {}).get(bar.key)
        if value is not None and not bar.met(value):
            told.append(f"{bar.row} {bar.key}: {number(value)}, bar {number(bar.bar)}")
    return told


def remarks(name: str, measured: dict) -> Iterable[str]:
    """What the worker and the machine did in a row, in a few lines: enough to see what limits it."""
    facts = measured.get("facts")
    figures = measured.get("figures", {})
    yield f"- **{name}**: " + ", ".join(f"{key} {number(value)}" for key, value in figures.items())
    if not facts:
        return
    batches = facts["batches"]
    reasons = ", ".join(f"{reason} {count}" for reason, count in batches["reasons"].items())
    stages = ", ".join(f"{key[:-3]} {value:.2f}" for key, value in batches.items() if key.endswith("_ms"))
    yield f"  - batches of {batches['mean_size']:.1f} on average ({reasons}); ms per batch, queue per request: {stages}"
    yield f"  - batches with the worker at a time: {batches['at_a_time']:.2f}"
    yield f"  - sizes: {common(batches['sizes'])}"
    if "worker_cores" in facts:
        yield (
            f"  - cores: worker {facts['worker_cores']:.2f} ({facts['worker_processes']} processes, busiest threads "
            f"{facts['threads']}), server {facts['server_cores']:.2f}"
        )
    if "gpu" in facts:
        gpu = facts["gpu"]
        yield (
            f"  - GPU: {gpu['utilisation_percent']:.0f} % busy, {gpu['memory_mib']:,.0f} MiB, {gpu['clock_mhz']:.0f} MHz"
        )
    extra = {
        key: value for worker in facts["described"]["workers"] for key, value in worker.items() if key not in KNOWN
    }
    if extra:
        yield f"  - worker: {extra}"
    if warning := facts["generator"].get("limited_by"):
        yield f"  - the generator: {warning}"


KNOWN = {"id", "startTime", "status", "memoryUsage", "pid", "gpu", "gpuUsage"}
"""What every worker has in `GET /models/{model}`."""


def common(sizes: dict[int, int]) -> str:
    """The sizes that came most often."""
    most = sorted(sizes.items(), key=lambda it: -it[1])[:8]
    return ", ".join(f"{size} ({count})" for size, count in most)


def bars() -> list[dict]:
    """The bars, for the JSON."""
    return [asdict(bar) for bar in BARS]
