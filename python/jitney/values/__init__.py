"""The values that models take and give: arrays, frames, tensors, rows, images, and how they are read from bodies.

Nothing here knows a definition, a request or a connection. Libraries are used where they are loaded and never imported
because a client asked.
"""
