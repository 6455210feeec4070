"""`jitney.infer` and the Python side of `jitney infer`: many rows through a model without a server.

`infer` is what programs call; `parquet` and `infer_ray` are processes that the command starts.
"""
