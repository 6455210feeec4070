"""Builds the fuzz targets and runs each for a while: executions, coverage, finds.

    python fuzz/run.py --cargo-fuzz .tools/bin/cargo-fuzz [--seconds 60] [TARGET ...]

New inputs that reach new code go to fuzz/found, those that fail to fuzz/artifacts; neither is checked in.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TARGETS = sorted(file.stem for file in (HERE / "fuzz_targets").glob("*.rs"))
EXECUTED = re.compile(rb"stat::number_of_executed_units:\s+(\d+)")
COVERED = re.compile(rb"cov: (\d+) ft: (\d+)")


def build(cargo_fuzz: str, targets: list[str]) -> Path:
    """Builds targets with coverage; returns the directory of the programs."""
    # Coverage works on a stable compiler, once it is told to take the flags of a nightly one.
    env = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    for target in targets:
        command = [cargo_fuzz, "fuzz", "build", "--sanitizer", "none", target]
        subprocess.run(command, cwd=HERE, env=env, check=True)
    [programs] = [file.parent for file in HERE.glob(f"target/*/release/{targets[0]}")]
    return programs


def run(program: list[str | Path], target: str, seconds: int, env: dict[str, str] | None = None) -> bool:
    """Runs the program of one target; False if it found something."""
    found, artifacts = HERE / "found" / target, HERE / "artifacts" / target
    for folder in (found, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    command = [*program, f"-max_total_time={seconds}", "-print_final_stats=1", "-timeout=30"]
    command += ["-rss_limit_mb=4096", f"-artifact_prefix={artifacts}/"]
    dictionary = HERE / "dictionaries" / f"{target}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    command += [found, HERE / "corpus" / target]
    ran = subprocess.run(command, cwd=HERE, env={**os.environ, **(env or {})}, capture_output=True, check=False)
    executed, covered = EXECUTED.findall(ran.stderr), COVERED.findall(ran.stderr)
    edges, features = covered[-1] if covered else (b"0", b"0")
    print(
        f"{target:14} {int(executed[-1]) if executed else 0:>10,} executions, "
        f"{int(edges):>6,} edges, {int(features):>6,} features, {len(list(found.iterdir())):>5,} inputs kept",
        flush=True,
    )
    if ran.returncode == 0:
        return True
    sys.stdout.buffer.write(ran.stderr[-4000:])
    for file in sorted(set(artifacts.iterdir()) - before):
        print(f"!!! {target} fails on {file.relative_to(HERE.parent)}")
    return False


def arguments(description: str | None, targets: list[str], *required: str) -> argparse.Namespace:
    """The words of the command line: these targets, all of them where none is named."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in required:
        parser.add_argument(name, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets))
    flags = parser.parse_args()
    unknown = sorted(set(flags.targets) - set(targets))
    if unknown:
        parser.error(f"there is no target {unknown[0]}; there are: {', '.join(targets)}")
    flags.targets = flags.targets or targets
    return flags


def main() -> int:
    """Runs the targets one after the other; 1 if any found something."""
    flags = arguments(__doc__, TARGETS, "--cargo-fuzz")
    programs = build(flags.cargo_fuzz, flags.targets)
    passed = [run([programs / target], target, flags.seconds) for target in flags.targets]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
