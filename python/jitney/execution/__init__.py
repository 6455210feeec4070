"""Runs the functions of a definition on batches of items: groups, calls, answers by item, streams, warm-up.

It knows neither sockets nor frames: workers, `jitney check` and `jitney.testing` drive the same code.
"""
