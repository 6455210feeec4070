"""Python APIs of other products over this package: `from jitney.compat import bentoml`, or `serve` for Ray Serve.

Each is written from the documented behaviour of the original, and is a layer over definitions and handles. What an
original has and a layer has not fails at its first use, with a sentence that says what to do.
"""
