"""Other servers' Python surfaces, ours underneath: an application moves by its import line.

`from jitney.compat import bentoml` stands for `import bentoml`. What a surface does not have fails when it is first
used, with a sentence that says what to do instead. Nothing here is imported by the rest of the package.
"""
