"""Metrics handlers report; each update is one line on stdout, which the server collects."""
