"""`python ts/metrics/metric_collector.py --gpu N`: the machine's metrics, then memory by process.

Process ids come in on stdin, one line of them separated by commas. The server needs no such
program; it exists for configurations and scripts that name it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

if __name__ == "__main__":  # Started as a file, its own directory is in the place of the package's.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from ts.metrics import system_metrics
from ts.metrics.process_memory_metric import check_process_mem_usage


def main(args: Sequence[str] | None = None) -> None:
    """Prints everything once."""
    parser = argparse.ArgumentParser(prog="metric_collector", description="Print the metrics of this machine.")
    parser.add_argument("--gpu", type=int, default=0, help="number of GPUs")
    given = parser.parse_args(args)
    system_metrics.collect_all(system_metrics, given.gpu)
    check_process_mem_usage(sys.stdin)


if __name__ == "__main__":
    main()
