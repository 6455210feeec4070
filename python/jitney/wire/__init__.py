"""How calls travel between Python processes: values and arguments as bytes, options of a call, addresses.

Handles, clients and workers share these files, so that both ends of a call always agree. No sockets here.
"""
