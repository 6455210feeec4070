"""What user code of SageMaker's containers imports, with the rules of AWS's inference toolkit.

The names are the toolkit's; the code is ours. Each request of a batch has its own headers, types and errors, nothing
that a client sent is unpickled, and clients see no traceback unless the server has `debug_errors`
(docs/coming-from/sagemaker.md). What starts a server in the toolkit is not here: `jitney serve` does that.
"""
