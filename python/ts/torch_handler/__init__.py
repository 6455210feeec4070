"""TorchServe's stock handlers, their bases and request envelopes, written anew.

The handlers need torch in the worker's Python.
"""
