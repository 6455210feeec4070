"""The one place where a file that a client sent is opened: images, arrays, tables, saved tensors.

What a file claims is asked before anything is decoded: its format, its pixels, the bytes it expands to. Nothing is
unpickled. What is not opened is `FileRejected`, with a sentence for the client. `make lint` forbids the bare calls of
the libraries elsewhere; files of archives, stores and definitions are their owner's and named there.
"""
