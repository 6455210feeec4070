"""Azure's own scenarios of its inference server, unchanged, with this server under the name of its command.

    JITNEY_BIN=… python tests/examples/azure.py CHECKOUT

CHECKOUT is one of microsoft/azureml-inference-server. The Python needs pytest, requests, psutil, numpy, flask and
inference-schema. `azmlinfsrv` on PATH is azure_commands/azmlinfsrv, which tells `jitney serve` what its flags say.
The tests ask port 5001 and end every process that has it, so they run in namespaces of their own, as root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gallery import ROOT, RUNS, checkout, commit, conclude, leave_path, tell

COMMANDS = Path(__file__).resolve().parent / "azure_commands"
FOLDER = "tests/azmlinfsrv"
ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c")
LOOPBACK = 'ip link set lo up && "$@"; exit $?'
OUTCOME = re.compile(r"^\S+::(test_\w+) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
LOG = "it looks for lines of the log of Azure's server"
INSIGHTS = "Application Insights, which is not here"
HEALTH = "a port of its own for health, which is not here, and a line of the log"
NOT_HERE = {
    "test_invalid_indent_crash": "the log says why, readiness stays 503, and the worker is tried again",
    "test_no_arg_from_cli_ok": "variables of Application Insights, which Azure's server sets itself",
    "test_server_version_header": "the header says `jitney/VERSION`",
    "test_print_init_ok": LOG,
    "test_print_run_ok_and_single_print": LOG,
    "test_load_config_from_file": "`AZUREML_CONFIG_FILE` is not read; the log says so",
    "test_log_configurability": "`logging.json` is not read",
    "test_app_insights_cli_ok": INSIGHTS,
    "test_app_insights_bad_key_cli_ok": INSIGHTS,
    "test_app_insights_cli_env_var": INSIGHTS,
    "test_app_insights_false_if_invalid": INSIGHTS,
    "test_app_insights_cli_over_env": INSIGHTS,
    "test_worker_count_env_var": LOG,
    "test_worker_timeout_env_var": LOG,
    "test_server_port_set_to_default": LOG,
    "test_cors_enabled": LOG,
    "test_cors_enabled_for_multiple_origins": LOG,
    "test_cors_enabled_without_package": LOG,
    "test_seperate_health_port": HEALTH,
    "test_set_custom_health_port_cli": HEALTH,
    "test_no_custom_health_port": LOG,
    "test_streaming_score": "the pieces come as they should; then it looks for a line of the log",
}
TEXT = (
    "Azure's scenarios of its server (azureml-inference-server at `{commit}`), unchanged, with this server under the "
    "name of its command: {{runs}} of {{all}} pass (tests/examples/azure.py)."
)
SECONDS = 1800


def run(home: Path) -> dict[str, str]:
    """The outcome of each scenario of this folder."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AML_", "AZUREML_", "JITNEY_"))}
    env |= {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "JITNEY_PYTHON": sys.executable}
    env |= {"PATH": f"{COMMANDS}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"JITNEY_BIN": str(Path(os.environ["JITNEY_BIN"]).resolve())}
    pytest = [sys.executable, "-m", "pytest", "-v", "-c", os.devnull, f"--rootdir={home}", "-p", "no:cacheprovider"]
    command = [*ALONE, LOOPBACK, "sh", *pytest, "scenarios"]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=SECONDS)
    print(done.stdout[-8000:], done.stderr[-4000:])
    return {name: RUNS if word == "PASSED" else word.lower() for name, word in OUTCOME.findall(done.stdout)}


def main() -> int:
    """Runs the scenarios of the checkout that is named."""
    leave_path()
    found = checkout(sys.argv[1:2], FOLDER)
    if not found:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch, "azmlinfsrv")
        shutil.copytree(found, home)
        outcomes = run(home)
    for name, outcome in outcomes.items():
        tell(name, outcome)
    text = TEXT.format(commit=commit(found))
    return conclude("azure-ml.md", "scenarios of Azure's server", text, outcomes, NOT_HERE) or int(not outcomes)


if __name__ == "__main__":
    sys.exit(main())
