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


def build(cargo_fuzz: str) -> Path:
    """Builds all targets with coverage; returns the directory of the programs."""
    # Coverage works on a stable compiler, once it is told to take the flags of a nightly one.
    env = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    command = [cargo_fuzz, "fuzz", "build", "--sanitizer", "none"]
    subprocess.run(command, cwd=HERE, env=env, check=True)
    [programs] = [file.parent for file in HERE.glob(f"target/*/release/{TARGETS[0]}")]
    return programs


def run(programs: Path, target: str, seconds: int) -> bool:
    """Runs one target; False if it found something."""
    found, artifacts = HERE / "found" / target, HERE / "artifacts" / target
    for folder in (found, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(artifacts.iterdir())
    command = [programs / target, f"-max_total_time={seconds}", "-print_final_stats=1", "-timeout=30"]
    command += ["-rss_limit_mb=4096", f"-artifact_prefix={artifacts}/"]
    dictionary = HERE / "dictionaries" / f"{target}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    ran = subprocess.run([*command, found, HERE / "corpus" / target], cwd=HERE, capture_output=True, check=False)
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


def main() -> int:
    """Runs the targets one after the other; 1 if any found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cargo-fuzz", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    flags = parser.parse_args()
    unknown = sorted(set(flags.targets) - set(TARGETS))
    if unknown:
        parser.error(f"there is no target {unknown[0]}; there are: {', '.join(TARGETS)}")
    programs = build(flags.cargo_fuzz)
    passed = [run(programs, target, flags.seconds) for target in flags.targets or TARGETS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
