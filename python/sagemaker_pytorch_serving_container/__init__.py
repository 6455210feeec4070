"""The names of AWS's toolkit for PyTorch that user code imports, and the handler of models without one.

Models of other frameworks are served by the same handler: torch is imported only where no function of the user's
replaces what needs it.
"""
