"""The command line: `python -m bench.peers install|run|report`."""

from __future__ import annotations

import argparse
import pathlib
import signal
import sys

from .drive import Driver
from .install import ROOT, home, install
from .report import page
from .results import Results
from .schedule import Lengths
from .servers import PEERS, SERVERS, Server
from .servers.base import say
from .upstream import SERVERS_OF_IT, play
from .workloads import W7, WORKLOADS

FILE = pathlib.Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "reference" / "performance.md"


def main() -> None:
    """Does what the verb says."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # So that a server under test is ended too.
    options = parser().parse_args()
    if options.verb == "report":
        return write_page(options.results)
    if options.verb == "upstream":
        return upstream(options)
    servers = chosen(options.only.split())
    missing = install(servers)
    say(f"environments are in {home()}")
    if options.verb == "install":
        return None
    results = Results.read(options.results) if options.append and options.results.exists() else Results()
    for name in [one.name for one in servers]:
        results.missing.pop(name, None)
    results.missing.update(missing)
    lengths = Lengths(options.seconds, options.overload_seconds, options.slow_share)
    driver = Driver(results, options.results, lengths)
    workloads = [WORKLOADS[name] for name in options.workloads.split()]
    driver.play([one for one in servers if one.name not in missing], workloads, options.rounds)
    write_page(options.results)
    return None


def upstream(options: argparse.Namespace) -> None:
    """Adds W7 to the figures that are there."""
    install(SERVERS[name] for name in SERVERS_OF_IT)
    results = Results.read(options.results) if options.results.exists() else Results()
    results.figures = [one for one in results.figures if one.workload != W7.name]
    play(results, options.serve, options.rounds)
    results.write(options.results)
    write_page(options.results)


def parser() -> argparse.ArgumentParser:
    """The flags."""
    top = argparse.ArgumentParser(prog="python -m bench.peers", description="Jitney beside other model servers")
    verbs = top.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("install", "make the environments"),
        ("run", "measure, and write the page"),
        ("upstream", "add W7, TorchServe's own benchmark-ab.py"),
        ("report", "write the page from figures that are there"),
    ):
        one = verbs.add_parser(verb, help=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        one.add_argument("--results", type=pathlib.Path, default=FILE, help="file of figures")
        if verb == "upstream":
            one.add_argument("serve", type=pathlib.Path, help="a checkout of pytorch/serve")
            one.add_argument("--rounds", type=int, default=3, help="how often both are measured")
        if verb in ("upstream", "report"):
            continue
        peers = " ".join(peer.name for peer in PEERS)
        one.add_argument("--only", default=peers, help="peers beside Jitney, or single ways of Jitney, by name")
        if verb == "run":
            one.add_argument("--workloads", default=" ".join(WORKLOADS), help="which")
            one.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
            one.add_argument("--seconds", type=float, default=3.0, help="length of a load")
            one.add_argument("--overload-seconds", type=float, default=10.0, help="length of W5's overload")
            one.add_argument("--slow-share", type=float, default=0.6, help="share of that for slow peers")
            one.add_argument("--append", action="store_true", help="keep the runs that the file has")
    return top


def chosen(names: list[str]) -> list[Server]:
    """The servers of these names; peers come with all of Jitney's ways and the bare loop."""
    if unknown := set(names) - set(SERVERS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    peers = [one for one in PEERS if one.name in names]
    if not peers or any(SERVERS[name].ours for name in names):
        return [one for one in SERVERS.values() if one.name in names]
    ours = [one for one in SERVERS.values() if one.ours or one.name == "bare"]
    if "triton" not in names:  # It is for who compares with Triton, and needs its environment.
        ours.remove(SERVERS["jitney-triton"])
    return [*ours, *peers]


def write_page(results: pathlib.Path) -> None:
    """Makes the page anew; the one of the documentation only from the figures in the repository."""
    target = PAGE if results.absolute() == FILE.absolute() else results.with_suffix(".md")
    target.write_text(page(Results.read(results)))
    say(f"wrote {target.name}")


if __name__ == "__main__":
    main()
