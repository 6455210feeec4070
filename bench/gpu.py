"""Image, text and plain definitions on a GPU, each beside a bare loop in the same run: docs/guides/gpu.md.

    JITNEY_BIN=target/release/jitney python3 bench/gpu.py --out gpu.json              # the whole table, medians of three
    ... bench/gpu.py --rows first,sixteen --quick                                      # some rows, one short round
    ... bench/gpu.py --device cpu --net resnet18 --quick                               # a try-out without a GPU
    ... bench/gpu.py --starts 10 --rows first,compiled --seconds 4 --wrk wrk           # the worst of ten starts
    ... bench/gpu.py --table gpu.json more.json --fill docs/guides/gpu.md                     # the table of earlier runs

The workers use the Python that runs this script; it needs torch, torchvision, numpy and Pillow. Weights are made up:
only the speed means anything, and every answer is checked against the bare model's. With `--work DIR` models and
pictures are kept for the next run. Rows: first, many, one, sixteen, none, pair, starts, compiled, encoder, definition, cpu.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from on_gpu import figures

if TYPE_CHECKING:
    from on_gpu.session import Bench


def main() -> None:
    """Runs rows and prints the table."""
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # So that the server is ended too.
    if options.table:
        reports = [json.loads(path.read_text()) for path in options.table]
        table = figures.table({name: row for one in reports for name, row in one["rows"].items()})
        print(table)
        if options.fill:
            options.fill.write_text(figures.filled(options.fill.read_text(), table))
        return
    with tempfile.TemporaryDirectory(prefix="jitney-gpu-") as folder:
        rows = measured(options, (options.work or pathlib.Path(folder)).resolve())
    if options.starts:
        from on_gpu import steady

        print("\n" + steady.table(rows) + "\n")
        rows_failed(rows)
        return
    print("\n" + figures.table(rows) + "\n")
    for name, row in rows.items():
        print("\n".join(figures.remarks(name, row)))
    print("\nBars missed: " + ("; ".join(figures.missed(rows)) or "none"))
    rows_failed(rows)


def rows_failed(rows: dict[str, dict]) -> None:
    """Ends with an error if a row has failed."""
    failed = [name for name, row in rows.items() if "failed" in row]
    if failed:
        raise SystemExit(f"rows that failed: {', '.join(failed)}")


def commit(options: argparse.Namespace) -> str:
    """The commit that is measured."""
    if options.commit:
        return options.commit
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent
    )
    return told.stdout.strip() or "unknown"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="some rows only, separated by commas")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--net", default="resnet152", help="a ResNet of torchvision")
    parser.add_argument("--precision", choices=["float32", "float16", "bfloat16"], help="float16 on a GPU")
    parser.add_argument("--rounds", type=int, help="3")
    parser.add_argument("--seconds", type=float, help="of a round: 5")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds")
    parser.add_argument("--scale", type=float, help="of batch sizes and connections; 1 on a GPU, a sixteenth elsewhere")
    parser.add_argument("--sizes", default="1,16,64,128,256", help="of the compiled model")
    parser.add_argument("--kinds", type=int, help="different pictures of each sort; 64")
    parser.add_argument("--work", type=pathlib.Path, help="keep models, pictures and compiled code here")
    parser.add_argument(
        "--trace", default="", help="rows of which py-spy is to record the worker, where it is installed"
    )
    parser.add_argument("--starts", type=int, help="measure first and compiled at so many starts, the worst counts")
    parser.add_argument("--wrk", type=pathlib.Path, help="the binary of wrk, the second generator of --starts")
    parser.add_argument("--commit", help="what is measured; asked of git if not given")
    parser.add_argument("--out", type=pathlib.Path, help="write everything as JSON")
    parser.add_argument("--table", type=pathlib.Path, nargs="+", help="print the table of such files, and end")
    parser.add_argument("--fill", type=pathlib.Path, help="and put it into this page, between its two marks")
    return parser.parse_args()


def measured(options: argparse.Namespace, work: pathlib.Path) -> dict[str, dict]:
    """What each row came to; a row that fails does not end the others."""
    import torch

    from on_gpu import steady
    from on_gpu.nets import Form
    from on_gpu.rows import ROWS
    from on_gpu.session import Bench, Plan

    def at_starts(name: str) -> Callable[[Bench], dict]:
        return lambda bench: steady.measured(bench, name, options.starts, options.wrk)

    known = {name: at_starts(name) for name in steady.ROWS} if options.starts else ROWS

    on_gpu = options.device.startswith("cuda")
    plan = Plan(
        form=Form(options.device, options.precision or ("float16" if on_gpu else "float32"), on_gpu),
        net=options.net,
        rounds=options.rounds or (1 if options.quick else 3),
        seconds=options.seconds or (2 if options.quick else 5),
        # A start is judged by what comes after the two seconds in which the policy may try how many batches to hold.
        warm_up=2.5 if options.starts else 0.5 if options.quick else 1,
        share=options.scale or (1 if on_gpu else 1 / 16),
        sizes=tuple(map(int, options.sizes.split(","))),
        kinds=options.kinds or (64 if on_gpu else 12),
        work=work,
        trace=tuple(filter(None, options.trace.split(","))),
    )
    machine = {
        "commit": commit(options),
        "torch": torch.__version__,
        "processors": os.cpu_count(),
        "device": options.device,
        "net": options.net,
    }
    if on_gpu:
        machine["device"] = torch.cuda.get_device_name(options.device)
    print(f"{machine}, {plan.rounds} x {plan.seconds} s", file=sys.stderr)
    asked = options.rows.split(",") if options.rows else list(known)
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise SystemExit(f"there is no row {unknown[0]}; there are {', '.join(known)}")
    rows: dict[str, dict] = {}
    with contextlib.closing(Bench(plan)) as bench:
        for name in (name for name in known if name in asked):
            started = time.perf_counter()
            rows[name] = one_row(known[name], bench)
            rows[name]["took_s"] = time.perf_counter() - started
            print(f"{name}: {rows[name]['took_s']:.0f} s", file=sys.stderr, flush=True)
            if options.out:
                report = {"machine": machine, "bars": figures.bars(), "rows": rows}
                options.out.write_text(json.dumps(report, indent=1))
    return rows


def one_row(row: Callable[[Bench], dict], bench: Bench) -> dict:
    """What a row came to, or why it failed and what the server said."""
    try:
        return row(bench)
    except Exception as error:
        told = {"failed": (str(error) or type(error).__name__).splitlines()[0], "traceback": traceback.format_exc()}
        print(f"a row failed: {told['traceback']}", file=sys.stderr)
        if bench.open is not None:
            told["log"] = bench.open[2].tail()
            print(told["log"], file=sys.stderr)
        bench.close()
        return told


if __name__ == "__main__":
    main()
