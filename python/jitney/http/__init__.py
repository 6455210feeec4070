"""How the parameters of HTTP requests become a definition's arguments, and its outputs become bodies.

Nothing here listens to a socket: the server does that, and the worker uses this package on the
parameters that it gets.
"""
