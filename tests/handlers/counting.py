"""Counts its rows with `prometheus_client`."""

import prometheus_client

ROWS = prometheus_client.Counter("counted_rows", "Rows seen", ["kind"])


def handle(data, context):
    """Answers every row with a word."""
    if data:
        ROWS.labels("plain").inc(len(data))
    return ["counted"] * len(data or [])
