"""The pages about errors beside the code: every error has one, and what a page says of it is so.

The table of errors is crates/server/src/errors/table.rs. A page names its row in a comment, `<!-- ErrorCode::Busy -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import docs_pages
from docs_pages import ROOT

ERRORS = ROOT / "docs" / "reference" / "errors"
TABLE = ROOT / "crates/server/src/errors/table.rs"
ROW = re.compile(r'Self::(\w+)\s*=> row\(\w+\s*,\s*(\d+),\s*(\d+), "(\w+)",\s*(\w+),\s*(\w+)\)')
WHO = {"Client": "the caller", "Server": "the operator", "Model": "the author of the model"}
ENUMS = ["engine/src/error.rs", "engine/src/workflow/error.rs", "engine/src/workflow/dag.rs", "store/src/error.rs"]
ENUMS += ["onnx/src/bad_input.rs", "onnx/src/prepare/image.rs"]
INSIDE = {
    "rejected:", "too much is under way:", "the model is still loading", "the worker exited:", "the model was removed",
    "the request makes workers exit", "the client fell too far behind its stream", " sequences are open already",
    " requests of this sequence wait already", "this sequence is over", "Invalid workflow:",
    "this sequence is not held here",
    " registered with 0 initial workers. Use scale workers API to add workers for the model.", " initial workers",
    " registered with 0 to ",
    " has been registered and scaled successfully.",
}  # fmt: skip
"""Messages that no client sees, since the error table has others for them, and those of requests that went well."""

PAGES = {
    page: page.read_text() for page in sorted(ERRORS.glob("*.md")) if page.name not in ("README.md", "commands.md")
}
CODE = {page: re.search(r"^<!-- ErrorCode::(\w+) -->$", text, re.MULTILINE) for page, text in PAGES.items()}


def rust(*folders: str) -> str:
    """The source of crates as one text, with strings in one piece."""
    files = [file for folder in folders for file in sorted((ROOT / "crates" / folder).rglob("*.rs"))]
    return re.sub(r"\\\n\s*", "", "".join(file.read_text() for file in files)).replace('\\"', '"')


def pieces(message: str) -> list[str]:
    """The fixed pieces of a message that are long enough to be looked for."""
    fixed = re.split(r"\{[^{}]*\}|[;:.()]", message)
    return [piece for piece in (one.strip(" \"'") for one in fixed) if len(piece) > 7]


def said(source: str) -> list[str]:
    """The messages that a file of the server makes problems of."""
    plain = re.sub(r"\\\n\s*", "", source.partition("#[cfg(test)]")[0])
    found = re.findall(r'let (?:message|full|text) = (?:format!\(\s*)?"((?:[^"\\]|\\.)+)"', plain)
    for start in re.finditer(r"Problem::(?:new|bad_request)\(", plain):
        depth, end = 1, start.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(plain[end], 0)
            end += 1
        found += re.findall(r'"((?:[^"\\]|\\.)+)"', plain[start.end() : end])
    return [message.replace('\\"', '"') for message in found]


def messages(text: str) -> list[str]:
    """The messages at the top of a page."""
    return re.search(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1].splitlines()


def test_every_row_of_the_error_table_has_a_page_that_agrees_with_it() -> None:
    rows = {name: rest for name, *rest in ROW.findall(TABLE.read_text())}
    declared = re.search(r"pub enum ErrorCode \{(.*?)^\}", TABLE.read_text(), re.MULTILINE | re.DOTALL)[1]
    assert set(rows) == set(re.findall(r"^    (\w+),", declared, re.MULTILINE)), "a row of the table was not understood"
    assert {found[1] for found in CODE.values()} == set(rows)
    for page, text in PAGES.items():
        status, grpc, kind, retry, who = rows[CODE[page][1]]
        told = [cell.strip() for cell in re.search(r"^\| (\d+ \|.*) \|$", text, re.MULTILINE)[1].split("|")]
        found = [told[0], told[1].split()[0], told[2], told[4], told[5]]
        assert found == [status, grpc, f"`{kind}`", "yes" if retry == "true" else "no", WHO[who]], page.name


def test_every_reason_has_a_page() -> None:
    source = rust("server/src", "net/src", "telemetry/src")
    words = set(re.findall(r'Rejection::\w+ => "(\w+)"', source)) | set(re.findall(r"\[reason: (\w+)\]", source))
    words |= set(re.findall(r'self\.message\([^;]*?"(\w+)"\)', source))
    words |= set(re.findall(r'reason: Some\("(\w+)"\.into\(\)\)', source))
    assert len(words) > 15
    told = {word for text in PAGES.values() for word in re.findall(r"`(\w+)`", re.search(r"^\| \d.*$", text, re.M)[0])}
    assert words - told == set()


def test_every_message_of_a_page_is_in_the_code() -> None:
    source = rust("server/src", "net/src", "telemetry/src", "engine/src", "store/src", "onnx/src")
    unknown = []
    for page, text in PAGES.items():
        for message in messages(text):
            sentence, _, reason = message.partition(" [reason: ")
            wanted = [*pieces(sentence), *([f'"{reason[:-1]}"'] if reason else [])]
            missing = [piece for piece in wanted if piece not in source and f"[reason: {piece[1:-1]}]" not in source]
            unknown += [f"{page.name}: {piece}" for piece in missing]
    assert not unknown, "\n".join(unknown)


def test_every_message_of_the_code_is_on_a_page() -> None:
    told = "\n".join(message for text in PAGES.values() for message in messages(text))
    missing = []

    def known(piece: str) -> bool:
        return piece in told or any(piece in one for one in INSIDE)

    for file in ENUMS:
        source = re.sub(r"\\\n\s*", "", (ROOT / "crates" / file).read_text())
        for message in re.findall(r'#\[error\(\s*"((?:[^"\\]|\\.)*)"', source):
            plain = message.replace('\\"', '"')
            for piece in pieces(plain):
                missing += [] if known(piece) else [f"{file}: {piece}"]
    for file in sorted((ROOT / "crates/server/src").rglob("*.rs")):
        if "tests" not in file.parts and file.name != "tests.rs":
            lost = [piece for message in said(file.read_text()) for piece in pieces(message) if not known(piece)]
            missing += [f"{file.relative_to(ROOT)}: {piece}" for piece in lost]
    assert not missing, "say on a page of docs/reference/errors when this comes:\n" + "\n".join(missing)


def test_the_index_lists_every_page_with_its_status() -> None:
    index = (ERRORS / "README.md").read_text()
    for page, text in PAGES.items():
        title = text.splitlines()[0].removeprefix("# ")
        status = re.search(r"^\| (\d+) \|", text, re.MULTILINE)[1]
        assert f"- [{title}]({page.name}): {status}" in index
    assert [page for _, page in docs_pages.entries(ERRORS / "README.md")][-1].name == "commands.md"
