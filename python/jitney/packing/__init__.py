"""From a definition to the directory that the server loads: settings, sizes, the OpenAPI paths, where the code is.

Packing imports the user's code and never runs a model.
"""
