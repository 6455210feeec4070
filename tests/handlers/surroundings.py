"""Says what a worker can see of its surroundings: environment, arguments, directory."""

import os
import subprocess
import sys


def handle(data, context):
    """The same for every row."""
    if not data:
        return None
    child = [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
    seen = {
        "environment": dict(os.environ),
        "child": subprocess.run(child, capture_output=True, text=True, check=True).stdout,
        "arguments": sys.argv,
        "directory": os.getcwd(),
    }
    return [seen for _ in data]
