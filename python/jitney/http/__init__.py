"""How HTTP's words become a definition's arguments and its outputs become bodies, by type hints.

Nothing here listens to a socket: the server does that, and the worker uses this room on the
parameters it is handed.
"""
