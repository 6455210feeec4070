"""Fails where a sentence that the documents promise is not true, or where nothing checks it.

Each sentence below "Rules" in ARCHITECTURE.md, and each that README promises, stands in SENTENCES with what checks it:
code that must not be written somewhere, a test that exists, or a line of another check. A sentence without an entry
fails, and so does an entry whose sentence is gone or whose exception is no longer needed. Sentences of other documents
stand there as well.

Pages and comments name files (`crates/load/src/lib.rs`) and modules (`engine::model`): each of them must exist.

    python tools/check_sentences.py [DIRECTORY]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rust_source import ROOT, code, line_of, production_files, tracked

RULES, PROMISES = "ARCHITECTURE.md", "README.md"
HEADINGS = {RULES: "## Rules", PROMISES: "## What it promises"}
"""Lists of which every sentence is checked."""


@dataclass(frozen=True)
class Never:
    """Code that matches a pattern is nowhere in these files, but for those that have a reason."""

    where: str
    pattern: str
    unless: Mapping[str, str] = field(default_factory=dict)
    """The end of a path, and why this file may."""

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each place, and each exception that nothing needs."""
        needed = set()
        for file, text in tree.code(self.where):
            allowed = [end for end in self.unless if file.endswith(end)]
            for found in re.finditer(self.pattern, text):
                needed.update(allowed)
                if not allowed:
                    yield f"{file}:{line_of(text, found.start())}: {found[0].strip()}"
        yield from (f"nothing needs the exception of {end}" for end in self.unless if end not in needed)


@dataclass(frozen=True)
class Tested:
    """A test of this name exists."""

    name: str

    def problems(self, tree: Tree) -> Iterator[str]:
        """One line if it is gone."""
        if not re.search(rf"\b(?:fn|def) {self.name}\(", tree.tests()):
            yield f"there is no test {self.name}"


@dataclass(frozen=True)
class Line:
    """A file of a check says this."""

    file: str
    text: str

    def problems(self, tree: Tree) -> Iterator[str]:
        """One line if it does not."""
        if self.text not in (tree.root / self.file).read_text():
            yield f"{self.file} does not say {self.text}"


@dataclass(frozen=True)
class Statics:
    """A static holds a constant, unless it has a reason here."""

    reasons: Mapping[str, str]

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each static that can change, and each reason for none."""
        seen = set()
        for file, text in tree.code("crates/*"):
            for found in STATIC.finditer(text):
                if found[1] in self.reasons:
                    seen.add(found[1])
                elif CHANGES.search(found[2]) or "thread_local" in text[: found.start()].rsplit("}", 1)[-1]:
                    yield f"{file}:{line_of(text, found.start())}: static {found[1]}"
        yield from (f"there is no static {name}" for name in self.reasons if name not in seen)


@dataclass(frozen=True)
class NoSleep:
    """Tests wait for conditions: none calls sleep for a time, but for these files."""

    reasons: Mapping[str, str]

    def problems(self, tree: Tree) -> Iterator[str]:
        """Each call, and each reason for none. Models under test that take time are texts or lie below `reasons`."""
        needed = set()
        for file in tracked(tree.root, "tests/*.py", "python/tests/*.py"):
            allowed = [start for start in self.reasons if file.startswith(start)]
            for line in sleeps(ast.parse((tree.root / file).read_text())):
                needed.update(allowed)
                if not allowed:
                    yield f"{file}:{line}: sleeps"
        yield from (f"nothing sleeps in {start}" for start in self.reasons if start not in needed)


STATIC = re.compile(r"\bstatic\s+(?:mut\s+)?([A-Z][A-Z0-9_]*)\s*:\s*([^=;]+)")
SLEEP = re.compile(r"(?:time|asyncio)\.sleep\((?!0\)).*\)", re.DOTALL)
CHANGES = re.compile(r"Lock|Cell|Mutex|Atomic|MiMalloc")


def sleeps(tree: ast.Module) -> Iterator[int]:
    """The lines that sleep for a time; sleep(0) only gives way to others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and SLEEP.fullmatch(ast.unparse(node)):
            yield node.lineno


Check = Never | Tested | Line | Statics | NoSleep

READS = r"\bfs::(?:read\w*|File\b|OpenOptions|\{[^}]*File)|\bFile::open\b"
"""Reading a file, whichever way."""
OPENS = (
    r"\b(?:[iI]mages?|PIL)\.open\(|\b(?:np|numpy|_numpy\(\)|torch|jit|joblib|(?:cloud)?pickle)\.loads?\(|\bread_magic\("
    r"|\b(?:pandas|pd)\.read_\w+\(|\bParquetFile\(|\b(?:ipc|feather|orc)\.(?:open|read)"
    r"|\bZipFile\(|\b(?:gzip|bz2|lzma|tarfile|imageio|cv2)\.(?:open|decompress|imread|imdecode)"
)
"""Opening a file with a library's own call."""
ERRORS = "OK|ACCEPTED|NO_CONTENT|NOT_MODIFIED|SWITCHING_PROTOCOLS|SEE_OTHER|PERMANENT_REDIRECT"
"""Statuses that are no failure."""

SENTENCES: dict[str, dict[str, tuple[Check, ...]]] = {
    RULES: {
        "Time comes as an argument: it has no clock, no thread, no I/O and no log.": (
            Never(
                "crates/batcher/src/*", r"\bstd::(?:time|thread|fs|io|net|env|process|sync)\b|\bprintln!|\btracing\b"
            ),
        ),
        "It depends on no other crate.": (Line("tools/check_crates.py", 'ALONE = ("jitney-batcher",'),),
        "It allocates nothing in the steady state.": (Tested("a_batcher_in_steady_state_does_not_allocate"),),
        "The same events give the same actions.": (Tested("the_same_events_twice_give_the_same_actions"),),
        "It speaks no protocol.": (
            Never("crates/engine/src/*", r"\b(?:hyper|tonic|http|prost)::"),
            Line("tools/check_crates.py", '"hyper": ('),
        ),
        "Of the status that a model stated it reads one thing: whether another attempt may help.": (
            Never(
                "crates/engine/src/*",
                r"\bStatusCode\b|\b[45]\d\d\s*(?:\.\.|=>)|\bstatus\s*(?:==|>=|<)\s*\d{3}\b",
                {"workflow/run.rs": "a node that blames its request is not asked again"},
            ),
        ),
        "The model's task waits in one place, for its inboxes and its alarm.": (
            Never("crates/engine/src/model/task*", r"\.await\b(?!;\n\s*let waiting)"),
        ),
        "Every request ends exactly once.": (
            Tested("in_any_weather_every_request_ends_exactly_once_with_its_own_answer"),
            Tested("whatever_happens_every_request_in_parts_ends_once"),
        ),
        "Requests that wait are owned by one table, `model::table`; nothing else is kept by their ids.": (
            Never("crates/*", r"Map<(?:jitney_batcher::)?RequestId\b"),
        ),
        "It makes no batching decision and knows no worker.": (
            Never("crates/server/src/*", r"\bjitney_(?:batcher|store|onnx)::"),
        ),
        "`errors` is the only place where a failure becomes a status.": (
            Never(
                "crates/server/src/*",
                rf"\bStatusCode::(?!(?:{ERRORS})\b)[A-Z_]+\b|: u16 = [45]\d\d\b",
                {
                    "rest/health.rs": "the status is the answer: how the server is",
                    "rest/v1.rs": "the status is the answer: whether a model is ready",
                    "respond.rs": "it is replaced by the problem's own in the next line",
                },
            ),
        ),
        "An endpoint is one row of `rest::endpoints` or `grpc::methods`.": (
            Tested("the_reference_page_is_made_from_the_rows"),
            Tested("every_method_of_our_services_has_a_row"),
            Never("crates/server/src/grpc/*", r"path\w*\.ends_with\("),
        ),
        "Every REST answer takes one way, `rest::answer`, whichever carrier brought the request.": (
            Tested("every_endpoint_answers_alike_over_every_carrier"),
        ),
        "It knows no model, no endpoint and no plugin.": (
            Line("tools/check_crates.py", '"jitney-net": {"jitney-memory", "jitney-settings"},'),
        ),
        "It picks no status for a failure.": (
            Never("crates/net/src/*", rf"\bStatusCode::(?!(?:{ERRORS})\b)[A-Z_]+\b|: u16 = [45]\d\d\b"),
        ),
        "It has no endpoint.": (Never("crates/telemetry/src/*", r"\bhyper::|\bhttp::Response\b|\bRoute\b"),),
        "A setting is declared once.": (Tested("the_reference_page_is_made_from_the_declarations"),),
        "It reads no file and no environment.": (Never("crates/settings/src/*", r"\bstd::(?:fs|env|io|net)\b"),),
        "An archive is hostile until it is unpacked inside its directory, within limits.": (
            Tested("nothing_is_written_through_a_link"),
            Tested("a_bomb_ends_at_the_limit_whatever_its_headers_say"),
        ),
        "The worker opens no port and reads no HTTP.": (
            Never("python/jitney/worker/*", r"http\.server|http\.client|urllib\.request|socketserver|\.listen\("),
        ),
        "Nothing is unpickled or imported because a peer asked for it.": (
            Never(
                "python/jitney/*",
                r"pickle\.loads?\(",
                {
                    "packing/by_value.py": "a module that the user's own process wrote reads what was written with it",
                    "compat/bentoml/frameworks.py": "the user's own model store, as in BentoML",
                    "compat/bentoml/store.py": "the user's own model store, as in BentoML",
                },
            ),
            Tested("test_a_call_makes_no_worker_import_a_library"),
        ),
        "A file that a client sent is opened in `jitney.files` and nowhere else.": (
            Never(
                "python/*",
                OPENS,
                {
                    "jitney/files/images.py": "this is the place",
                    "jitney/files/arrays.py": "this is the place",
                    "jitney/files/tables.py": "this is the place",
                    "jitney/files/saved_tensors.py": "this is the place",
                    "packing/by_value.py": "a module that the user's own process wrote reads what was written with it",
                    "compat/bentoml/frameworks.py": "the user's own model store, as in BentoML",
                    "compat/bentoml/store.py": "the user's own model store, as in BentoML",
                    "cluster/ray_files.py": "the server's own packages and model, on their way to another node",
                    "cluster/ray_placement.py": "the server's own packages, on their way to another node",
                    "ts/torch_handler/text_handler.py": "the vocabulary of the archive",
                    "ts/torch_handler/formats.py": "the model file of the archive",
                    "ts/torch_handler/device_trial.py": "a picture that it made itself",
                    "model_archiver/model_packaging_utils.py": "it writes an archive",
                },
            ),
            Tested("test_a_file_of_postscript_starts_no_program"),
            Tested("test_objects_in_an_array_are_not_unpickled"),
        ),
        "Only `cli` reads the environment.": (
            Line("clippy.toml", '"std::env::vars_os"'),
            Never(
                "crates/*",
                r"clippy::disallowed_methods",
                {
                    "cli/src/env.rs": "this is the place",
                    "cli/src/torchserve/process.rs": "it polls a process that is no child",
                    "cli/src/run/signals.rs": "a second signal ends the process at once",
                    "engine/build.rs": "cargo speaks to build scripts by environment",
                },
            ),
        ),
        "No crate holds `unsafe`.": (Line("Cargo.toml", 'unsafe_code = "forbid"'),),
        "No lock is held across an await, unless it is there to take turns.": (
            Line("Cargo.toml", 'await_holding_lock = "deny"'),
            Never(
                "crates/*",
                r"\btokio::sync::(?:\{[^}]*)?\b(?:Mutex|RwLock)\b",
                {
                    "model/budget.rs": "loads wait for memory one after the other",
                    "engine/repository.rs": "one change of a model at a time",
                    "engine/repository/records.rs": "one change of a model at a time",
                    "infer/backend/ray.rs": "one message at a time to the process beside it",
                    "load/src/http2.rs": "whoever opens a connection opens it for all",
                },
            ),
        ),
        "A static holds a constant; the few others are listed with their reasons.": (
            Statics(
                {
                    "ALLOCATOR": "a process has one",
                    "LIBRARY": "ONNX Runtime is loaded once into a process, and never unloaded",
                    "POOL": "threads that decode images, as many as there are processors",
                    "BUFFERS": "of a thread: memory that is used again, and holds nothing between requests",
                    "SPARE": "of a thread: compressors that are used again, and hold nothing between answers",
                    "CELLS": "a table that is computed once",
                    "API": "a file in the binary, parsed once",
                }
            ),
        ),
        "Tests wait for conditions, not by sleeping.": (
            Line("clippy.toml", '"std::thread::sleep"'),
            NoSleep(
                {
                    "tests/harness/wait.py": "this is where tests wait for a condition",
                    "tests/handlers/": "models that take time",
                    "tests/compat/": "models that take time",
                    "tests/soak/": "half an hour of load, by the clock",
                    "tests/test_load.py": "it sends at a rate",
                    "python/tests/test_serve_batch.py": "on a loop with virtual time",
                    "python/tests/test_handle_session.py": "a call that is cancelled while it sleeps",
                    "python/tests/test_process_group.py": "a child that another process waits for",
                }
            ),
        ),
    },
    PROMISES: {
        "**A bad item fails alone.** A handler that raises on a batch is retried in halves until the bad request "
        "stands alone; the others get their answers.": (
            Tested("test_an_exception_on_one_item_fails_that_item_alone"),
            Tested("test_two_bad_items_fail_and_the_rest_is_answered"),
        ),
        "**A worker that exits loses nothing.** Its requests are retried in halves, and new ones pass between them.": (
            Tested("test_under_random_failures_every_answer_is_ones_own"),
            Tested("test_one_models_trouble_is_not_anothers"),
        ),
        "A request that kills workers costs 1 + log2 n of them among n.": (
            Tested("test_a_poisonous_request_among_four_costs_three_processes_and_its_neighbours_nothing"),
        ),
        "**A client that leaves costs nothing more.** Its request leaves the queue at once.": (
            Tested("test_a_queued_request_whose_client_left_does_not_run"),
            Tested("test_the_place_of_a_client_that_left_is_filled"),
        ),
        "Its stream ends at the next piece, and goes on for the others of its batch.": (
            Tested("test_a_generator_is_closed_whose_client_left"),
            Tested("test_a_stream_of_any_kind_ends_when_its_client_left"),
            Tested("test_a_batched_stream_goes_on_for_those_who_stay"),
            Tested("test_a_handler_of_torchserve_cannot_send_to_nobody"),
        ),
        "**Rejections are early and explained.** When the queue is full, a deadline (`x-jitney-timeout-ms`) cannot be "
        "kept, no worker runs or the server drains, the client is told at once: the reason is in the body, "
        "`Retry-After` in the header.": (
            Tested("test_a_full_queue_rejects_with_a_reason_and_when_to_come_again"),
            Tested("test_a_rejection_does_not_wait_and_tells_why_and_when_to_come_again"),
            Tested("test_a_deadline_that_passes_in_the_queue_ends_the_wait"),
        ),
        "**Every client gets its own row.** The length of every batch's output is checked.": (
            Tested("test_a_wrong_output_reaches_no_client"),
        ),
    },
    "docs/adr/0006-no-globals.md": {
        "Any other is listed in tools/check_sentences.py with its reason.": (
            Line("tools/check_sentences.py", "Statics("),
        ),
    },
    "crates/engine/src/lib.rs": {
        "It reads no environment and no flag.": (Line("clippy.toml", '"std::env::var"'),),
    },
    "crates/server/src/lib.rs": {
        "It reads no flag and no environment, and no file but the shared memory that clients offer.": (
            Never("crates/server/src/*", READS, {"shared_memory.rs": "this is the place"}),
        ),
    },
    "crates/net/src/lib.rs": {
        "picks no status for a failure, and reads no file, flag or environment.": (Never("crates/net/src/*", READS),),
    },
    "crates/telemetry/src/lib.rs": {
        "It reads no file, flag or environment.": (Never("crates/telemetry/src/*", READS),),
    },
    "crates/memory/src/lib.rs": {
        "This crate knows no protocol and no model, and reads nothing.": (
            Never("crates/memory/src/*", rf"{READS}|\bhttp::|\bhyper::|\bjitney_(?!memory)\w+::"),
        ),
    },
    "crates/load/src/lib.rs": {
        "It reads no flag, prints nothing, and knows nothing of the server beyond its protocols.": (
            Never("crates/load/src/*", r"\bclap::|\bjitney_(?!proto|load)\w+::"),
            Line("Cargo.toml", 'print_stdout = "deny"'),
        ),
    },
    "crates/sim/src/lib.rs": {
        "It reads no file and prints nothing, and a seed gives the same run on every machine.": (
            Never("crates/sim/src/*", r"\bstd::(?:fs|time|env|net)\b"),
            Tested("the_same_seed_gives_the_same_run"),
        ),
    },
    "crates/onnx/src/lib.rs": {
        "Only `engine` knows what runs a model.": (
            Never(
                "crates/onnx/src/*",
                r"\b(?:rten|rten_tensor|ort)::",
                {
                    "onnx/src/engine.rs": "the interface, and the choice",
                    "engine/ort.rs": "ONNX Runtime",
                    "engine/rten.rs": "the engine that is built in",
                },
            ),
        ),
    },
    "crates/settings/src/lib.rs": {
        "Nothing here reads a file or the environment: callers bring texts and JSON values.": (
            Never("crates/settings/src/*", r"\bstd::(?:fs|env|io|net)\b"),
        ),
    },
    "crates/proto/src/lib.rs": {
        "`tests/generated.rs` makes it anew and compares.": (Tested("the_code_is_what_the_files_say"),),
    },
    "crates/store/src/lib.rs": {
        "Nothing here runs a model's code, knows a status code, or writes outside [`StoreConfig::scratch`]": (
            Never("crates/store/src/*", r"\bCommand::new\b|\bStatusCode\b|\bstd::process\b"),
            Tested("nothing_is_written_through_a_link"),
        ),
        "An archive that fails to unpack leaves nothing behind.": (
            Tested("test_what_was_rejected_leaves_nothing_behind"),
        ),
    },
}


class Tree:
    """The files of a project, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rust = {file: code((root / file).read_text()) for file in production_files(root)}
        self.python = {
            file: (root / file).read_text() for file in tracked(root, "python/*.py") if "/tests/" not in file
        }
        self._tests: str | None = None

    def code(self, where: str) -> Iterator[tuple[str, str]]:
        """The production files whose path starts so, and their code."""
        start = where.removesuffix("*")
        yield from ((file, text) for file, text in (self.rust | self.python).items() if file.startswith(start))

    def tests(self) -> str:
        """All Rust and Python there is, with the tests."""
        if self._tests is None:
            files = tracked(self.root, "crates/*.rs", "bench/lab/*.rs", "tests/*.py", "python/tests/*.py")
            self._tests = "\n".join((self.root / file).read_text() for file in files)
        return self._tests


def plain(text: str) -> str:
    """A document without the marks of comments, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"^\s*//!", " ", text, flags=re.MULTILINE))


def rules(document: str, heading: str) -> list[str]:
    """The sentences of the list below the heading; the name in front of a rule is no part of its first sentence."""
    section = document.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, flags=re.MULTILINE)
    bare = [re.sub(r"^\*\*[^*]+\*\*:\s*", "", plain(item)) for item in items]
    return [
        sentence.strip() for item in bare for sentence in re.split(r"(?<=[.;]) (?=[A-Z`])", item) if sentence.strip()
    ]


def problems(root: Path, sentences: dict[str, dict[str, tuple[Check, ...]]] = SENTENCES) -> Iterator[str]:
    """What is not true, what nothing checks, and what nobody says any more."""
    tree = Tree(root)
    for document, checked in sentences.items():
        text = plain((root / document).read_text())
        for sentence, checks in checked.items():
            if sentence not in text:
                yield f"{document} no longer says: {sentence}"
            yield from (f"{document}: {sentence}\n  {found}" for check in checks for found in check.problems(tree))
    for document in HEADINGS.keys() & sentences.keys():
        for sentence in rules((root / document).read_text(), HEADINGS[document]):
            if sentence not in sentences[document]:
                yield f"{document}: nothing checks this: {sentence}"


PATH = re.compile(
    r"(?<![\w/.:-])((?:bench|crates|deploy|docs|examples|fuzz|protocol|python|tests|tools|ui)/[\w./-]*\w)"
)
MODULE = re.compile(r"`(\w+)::([a-z]\w*(?:::[a-z]\w*)*)")
HISTORY = ("CHANGELOG.md", "tools/walks.md")
"""Pages that say how things were."""


def lost_names(root: Path) -> Iterator[str]:
    """Files and modules that pages and comments name and that do not exist."""
    pages = [page for page in tracked(root, "*.md") if page not in HISTORY]
    for page in pages:
        text = (root / page).read_text()
        for found in PATH.finditer(text):
            if not (root / found[1]).exists() and not (root / page).parent.joinpath(found[1]).exists():
                yield f"{page}:{line_of(text, found.start())}: there is no {found[1]}"
    files = tracked(root, "crates/*.rs")
    modules = {file.removesuffix(".rs").removesuffix("/mod").replace("/src/", "/", 1) for file in files}
    crates = {path.split("/")[1] for path in modules}
    for page in [*pages, *production_files(root)]:
        text = (root / page).read_text()
        for found in MODULE.finditer(text):
            first = found[2].split("::")[0]
            if found[1] in crates and not any(module.endswith(f"/{found[1]}/{first}") for module in modules):
                yield f"{page}:{line_of(text, found.start())}: there is no module {found[1]}::{first}"


def main() -> int:
    """Prints what is wrong; 1 if anything is."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found = [*problems(root), *lost_names(root)]
    count = sum(len(checked) for checked in SENTENCES.values())
    print("\n".join(found) or f"sentences: {count} are checked")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
