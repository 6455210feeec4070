"""Workers on the machines of a Ray cluster: where they are placed, what travels there, the process on the node.

`ray_placement` is a process beside the server; nothing else imports Ray for it.
"""
