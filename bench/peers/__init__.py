"""Jitney beside other model servers, in one run: `make bench-peers`, or `python -m bench.peers --help`."""
