"""Models of Triton's Python backend: `model.py` with a class `TritonPythonModel`, run as it is.

`backend_utils` is what such a model imports as `triton_python_backend_utils`; `messages` are the objects it gets and
gives, `calls` its calls of other models, `model` its loading and running. Nothing here reads or writes frames.
"""
