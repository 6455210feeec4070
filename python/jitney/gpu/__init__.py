"""What handlers and definitions share on a GPU: allowed batch sizes, captured graphs, compilation, streams.

Nothing here imports torch before it is asked to do something with it.
"""
