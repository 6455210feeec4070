"""How models are defined: decorators and their options, type hints, expressions, parts of applications.

`definition` is what the decorators make, `application` how several become one. Nothing here runs a model; it says what
there is to run.
"""
