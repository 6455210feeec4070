"""What this interpreter and its machine have: the `jitney` program, a notebook, the packages of an environment.

`environment` and `inspect_python` are run by the server and by `jitney doctor`. No model code here.
"""
