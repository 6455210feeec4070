"""Every code block of every page, run as it stands: `make test-docs`.

tools/docs_pages.py says what each language means and which words may mark a block that cannot be run. What a page
takes for granted (a photo, an archive) is in harness/docs_files.py.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import docs_pages
from docs_pages import ROOT, Block
from harness.docs_files import FILES
from harness.snippets import Sandbox

pytestmark = pytest.mark.heavy

PAGES = [page for page in [ROOT / "README.md", *docs_pages.pages()] if any(docs_pages.blocks(page))]


@pytest.fixture
def sandbox(binary: Path, tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(binary, tmp_path)
    yield sandbox
    sandbox.end()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_does_what_it_says(page: Path, sandbox: Sandbox) -> None:
    blocks = list(docs_pages.blocks(page))
    FILES.get(str(page.relative_to(ROOT)).removeprefix("docs/"), lambda _: None)(sandbox)
    for block in blocks:
        check_syntax(block)
        if block.file and "other" not in block.options:
            sandbox.write(block.file, block.text)
    said, program = "", ""
    for block in blocks:
        if "output" in block.options:
            compare(block, said)
        elif not block.runs:
            continue
        elif block.language == "python":
            program = program + block.text if "continues" in block.options else block.text
            said = sandbox.python(program, where=block.where)
        elif block.language == "console":
            type_in(block, sandbox)
        else:
            code, ready = int(block.options.get("exit", 0)), "unready" not in block.options
            said = sandbox.bash(block.text, code=code, ready=ready, where=block.where)


def type_in(block: Block, sandbox: Sandbox) -> None:
    """Runs the commands of a console one by one, and compares what they print."""
    for piece in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, expected = re.match(r"((?:.*\\\n)*.*\n?)(.*)", piece, re.DOTALL).groups()
        said = sandbox.bash(command, code=int(block.options.get("exit", 0)), where=block.where)
        if expected.strip():
            assert like(expected, said), f"{block.where}: {command}\nprints\n{said}\nthe page says\n{expected}"


def compare(block: Block, said: str) -> None:
    """An output of the page is what was printed, but for `...`."""
    if block.language == "json":
        told, printed = json.loads(block.text), json.loads(said)
        assert same(told, printed), f"{block.where}: printed\n{said}\nthe page says\n{block.text}"
    else:
        assert like(block.text, said), f"{block.where}: printed\n{said}\nthe page says\n{block.text}"


def like(told: str, printed: str) -> bool:
    """Whether a text is as told; `...` stands for anything."""
    pattern = re.escape(told.strip()).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def same(told: object, printed: object) -> bool:
    """Whether a value is as told; "..." stands for any value, as a key for more keys, at the end for more rows."""
    if told == "...":
        return True
    if isinstance(told, dict) and isinstance(printed, dict):
        more = "..." in told or set(printed) <= set(told)
        return more and all(key in printed and same(one, printed[key]) for key, one in told.items() if key != "...")
    if isinstance(told, list) and isinstance(printed, list):
        if told and told[-1] == "...":
            told, printed = told[:-1], printed[: len(told) - 1]
        return len(told) == len(printed) and all(map(same, told, printed))
    if isinstance(told, float) and isinstance(printed, float):
        return told == pytest.approx(printed, rel=1e-3)
    return told == printed


def check_syntax(block: Block) -> None:
    """What can be said of a block without running it."""
    try:
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "bash":
            subprocess.run(["bash", "-n", "-c", block.text], check=True, capture_output=True, text=True)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            import tomllib

            tomllib.loads(block.text)
        elif block.language == "yaml":
            import yaml

            list(yaml.safe_load_all(block.text))
        elif block.language == "ini":
            configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
        elif block.language == "properties":
            lines = re.sub(r"\\\n\s*", "", block.text).splitlines()
            assert all("=" in line for line in lines if line.strip() and not line.startswith("#"))
    except Exception as error:
        raise AssertionError(f"{block.where}: {error}") from error


def test_what_is_not_run_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for page in PAGES for block in docs_pages.blocks(page)]
    with capsys.disabled():
        print(f"\n{len(blocks)} code blocks, {sum(block.runs for block in blocks)} of them run; only looked at:")
        for block in blocks:
            reason = block.options.get("no-run") or ("code of another product" if "other" in block.options else None)
            if reason:
                print(f"  {block.where}: {block.language}: {reason}")
