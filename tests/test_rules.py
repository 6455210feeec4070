"""The checks of `make lint` find what they are there for: each is given code that breaks its rule."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]

import check_crates  # noqa: E402
import check_defaults  # noqa: E402
import check_modules  # noqa: E402
import check_names  # noqa: E402
import check_sentences  # noqa: E402
import house  # noqa: E402
import instructions  # noqa: E402
import rust_source  # noqa: E402
import sentence_checks  # noqa: E402
import walk  # noqa: E402

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Writes the files of a small project."""

    def write(files: dict[str, str]) -> Path:
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def rust(**files: str) -> dict[str, str]:
    """The files of one crate by module name; two underscores go one folder down."""
    return {f"crates/one/src/{name.replace('__', '/')}.rs": text for name, text in files.items()}


# -- reading Rust -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "// struct Gone;",
        "/* struct Gone; */",
        'const A: &str = "struct Gone;";',
        'const A: &str = r#"struct Gone; " "#;',
        "#[cfg(test)]\nmod tests {\n    struct Gone { x: [u8; 2] }\n}",
        "#[cfg(test)]\n#[derive(Debug)]\nstruct Gone;",
        '#[cfg(any(test, feature = "testkit"))]\npub mod testkit { struct Gone; }',
        "const QUOTE: char = '\"'; // \" struct Gone;",
    ],
)
def test_only_production_code_is_read(text: str) -> None:
    read = rust_source.code(f"{text}\nstruct Kept<'a>(&'a str);\n")
    assert "Gone" not in read
    assert "struct Kept<'a>(&'a str);" in read
    assert read.count("\n") == text.count("\n") + 2


# -- circles ----------------------------------------------------------------------------------

CIRCLES = {
    "two files": rust(
        lib="mod a;\nmod b;", a="use crate::b::B;\npub struct A(B);", b="use super::a::A;\npub struct B(Box<A>);"
    ),
    "a path without an import": rust(
        lib="mod a;\nmod b;", a="pub struct A(crate::b::B);", b="pub fn f() { crate::a::A::new() }\npub struct B;"
    ),
    "a parent and its child": rust(
        a="mod b;\nuse self::b::B;\npub struct Limit;\nfn f(_: B) {}",
        a__b="use super::Limit;\npub struct B(Limit);",
        lib="mod a;",
    ),
    "a child of a folder's mod.rs": rust(
        lib="mod a;", a__mod="mod b;\npub struct Limit;\nfn f() { b::g() }", a__b="pub fn g() { super::Limit; }"
    ),
    "through re-exports": rust(
        lib="mod a;\nmod c;\npub use self::{a::A, c::C};",
        a="mod deep;\npub use self::deep::A;",
        a__deep="use crate::C;\npub struct A(C);",
        c="use crate::A;\npub struct C(Box<A>);",
    ),
    "through a renamed re-export": rust(
        lib="mod a;\nmod b;\nuse self::b::B as Bee;",
        a="use crate::Bee;\npub struct A(Bee);",
        b="use crate::a::A;\npub struct B(A);",
    ),
    "through a glob": rust(
        lib="mod a;\nmod b;\nmod face;",
        face="pub use crate::b::*;",
        a="use crate::face::B;\npub struct A(B);",
        b="use crate::a::A;\npub struct B(A);",
    ),
    "in a binary": rust(main="mod a;\nmod b;", a="use crate::b;\nfn f() { b::g() }", b="pub fn g() { crate::a::f() }"),
    "of three": rust(
        lib="mod a;\nmod b;\nmod c;",
        a="use crate::b::B;\npub struct A(B);",
        b="use crate::c::C;\npub struct B(C);",
        c="use crate::a::A;\npub struct C(A);",
    ),
}

NO_CIRCLES = {
    "a face that only hands names on": rust(
        lib="mod a;\nmod b;\npub use self::{a::A, b::B};", a="use crate::B;\npub struct A(B);", b="pub struct B;"
    ),
    "test code": rust(
        lib="mod a;\nmod b;",
        a="use crate::b::B;\npub struct A(B);",
        b="pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
    ),
    "other crates": rust(
        lib="mod a;\nmod b;", a="use crate::b::B;\nuse serde::A;\npub struct A2(B);", b="pub struct B(serde::a::A);"
    ),
    "a child that needs only its siblings": rust(
        lib="mod a;",
        a="mod b;\nmod c;\nuse self::b::B;\nfn f(_: B) {}",
        a__b="use super::c::C;\npub struct B(C);",
        a__c="pub struct C;",
    ),
}


@pytest.mark.parametrize("kind", CIRCLES)
def test_a_circle_of_rust_modules_is_found(tree: Tree, kind: str) -> None:
    assert len(check_modules.circles(check_modules.rust_arrows(tree(CIRCLES[kind])))) == 1


@pytest.mark.parametrize("kind", NO_CIRCLES)
def test_rust_modules_without_a_circle_pass(tree: Tree, kind: str) -> None:
    assert check_modules.circles(check_modules.rust_arrows(tree(NO_CIRCLES[kind]))) == []


def test_a_circle_of_python_modules_is_found(tree: Tree) -> None:
    files = {
        "python/pack/__init__.py": "from .a import A",
        "python/pack/a.py": "class A:\n    def f(self):\n        from .b import B",
        "python/pack/b.py": "from pack import A\nclass B: ...",
    }
    assert check_modules.circles(check_modules.python_arrows(tree(files))) == [["python/pack/a.py", "python/pack/b.py"]]


def test_python_modules_without_a_circle_pass(tree: Tree) -> None:
    files = {
        "python/pack/__init__.py": "from .a import A\nfrom .b import B",
        "python/pack/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import C\nclass A: ...",
        "python/pack/b.py": "from . import A\nclass B: ...",
        "python/pack/c.py": "class C: ...",
    }
    assert check_modules.circles(check_modules.python_arrows(tree(files))) == []


def test_imports_for_types_only_count_too(tree: Tree) -> None:
    files = {
        "python/pack/a.py": "import typing\nif typing.TYPE_CHECKING:\n    from pack.b import B\nclass A: ...",
        "python/pack/b.py": "from pack.a import A\nclass B: ...",
    }
    assert len(check_modules.circles(check_modules.python_arrows(tree(files)))) == 1


def test_the_report_says_what_ties_a_circle(tree: Tree) -> None:
    lines = check_modules.report(check_modules.rust_arrows(tree(CIRCLES["two files"])))
    assert lines[0] == "circle of 2 files:"
    assert "  crates/one/src/a.rs -> crates/one/src/b.rs: crate::b::B" in lines


# -- circles of folders -----------------------------------------------------------------------

FOLDER_CIRCLES = {
    "two folders": rust(
        lib="mod a;\nmod b;",
        a="mod x;\nmod y;",
        a__x="use crate::b::w::W;\npub struct X(W);",
        a__y="pub struct Y;",
        b="mod w;\nmod z;",
        b__w="pub struct W;",
        b__z="use crate::a::y::Y;\npub struct Z(Y);",
    ),
    "a folder and a file beside it": rust(
        lib="mod a;\nmod b;",
        a="mod x;\nmod y;",
        a__x="use crate::b::B;\npub struct X(B);",
        a__y="pub struct Y;",
        b="use crate::a::y::Y;\npub struct B(Y);",
    ),
    "the top of the Python package and a folder in it": {
        "python/jitney/__init__.py": "",
        "python/jitney/words.py": "class Word: ...",
        "python/jitney/model.py": "from .run.start import start",
        "python/jitney/run/__init__.py": "",
        "python/jitney/run/start.py": "from ..words import Word\ndef start(): ...",
    },
}


@pytest.mark.parametrize("kind", FOLDER_CIRCLES)
def test_a_circle_of_folders_is_found(tree: Tree, kind: str) -> None:
    arrows = check_modules.all_arrows(tree(FOLDER_CIRCLES[kind]))
    assert check_modules.circles(arrows) == []
    [circle] = check_modules.folder_circles(arrows)
    [first, *ties] = check_modules.report_folders(arrows, [])
    assert first == f"circle of folders: {' '.join(circle)}"
    assert len(ties) == 2
    assert check_modules.report_folders(arrows, [circle]) == []


def test_a_parent_and_its_own_folder_are_no_circle(tree: Tree) -> None:
    files = rust(
        lib="mod a;",
        a="mod b;\npub struct A;\nfn f() { b::g() }",
        a__b="mod c;\npub fn g() {}",
        a__b__c="use crate::a::A;",
    )
    assert check_modules.folder_circles(check_modules.all_arrows(tree(files))) == []


def test_a_known_circle_of_folders_that_is_no_more_is_found(tree: Tree) -> None:
    root = tree({"tools/folder_circles.txt": "# why\ncrates/one/src/b crates/one/src/a\n", **rust(lib="")})
    gone = "tools/folder_circles.txt: this circle is no more: crates/one/src/a crates/one/src/b"
    assert check_modules.problems(root) == [gone]


# -- lengths ----------------------------------------------------------------------------------


def test_only_production_lines_count(tree: Tree) -> None:
    body = "//! Why.\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n"
    root = tree(
        {**rust(lib=body, a__tests="fn g() {}\n"), "python/jitney/a.py": "A = 1\n", "python/tests/b.py": "B = 1\n"}
    )
    assert house.rust_lines(root) == {"crates/one/src/lib.rs": 2}
    assert house.python_lines(root) == {"python/jitney/a.py": 1}


def test_long_functions_and_files_are_found(tree: Tree) -> None:
    inner = "    x();\n"
    python = "def f():\n" + "    x()\n" * house.FUNCTION_LINES
    files = rust(
        lib="fn short() {\n" + inner * (house.FUNCTION_LINES - 2) + "}\n",
        a="fn long() {\n" + inner * (house.FUNCTION_LINES - 1) + "}\n",
        b="const A: u8 = 1;\n" * (house.FILE_LINES + 1),
    )
    long = ["crates/one/src/a.rs:long", "crates/one/src/b.rs", "python/ts/c.py:f"]
    root = tree({**files, "python/ts/c.py": python, "tools/long_code.txt": "\n".join([*long, "gone.rs"])})
    assert sorted(house.long_code(root)) == long
    assert house.check(root) == ["tools/long_code.txt: no longer too long: gone.rs"]
    (root / "tools/long_code.txt").unlink()
    assert [line.rsplit(": ", 1)[0] for line in house.check(root)] == long


# -- names ------------------------------------------------------------------------------------


def test_a_type_name_is_defined_once(tree: Tree) -> None:
    root = tree(
        {
            "crates/one/src/lib.rs": "pub struct Entry;\nimpl Iterator for Entry { type Item = u8; }",
            "crates/two/src/lib.rs": "pub(crate) enum Entry { A }\nimpl Iterator for Entry { type Item = u8; }",
            "crates/two/tests/all.rs": "struct Entry;",
        }
    )
    problems = check_names.check_shared(check_names.types(root), [])
    assert len(problems) == 2
    assert problems[0].startswith("crates/one/src/lib.rs:1: type Entry: this name is defined 2 times")


def test_a_shared_name_needs_a_reason_and_the_list_is_never_stale(tree: Tree) -> None:
    root = tree({"crates/one/src/lib.rs": "struct Entry;", "crates/two/src/lib.rs": "struct Entry;"})
    entry, gone = (check_names.Allowed(name, "*", "why") for name in ("Entry", "Gone"))
    defined = check_names.types(root)
    assert check_names.check_shared(defined, [entry]) == []
    assert check_names.check_shared(defined, [entry, gone]) == ["shared_names.txt: Gone is no longer shared"]


def test_a_class_name_that_two_python_files_define_is_found_wherever_it_stands(tree: Tree) -> None:
    files = {
        "python/jitney/one.py": "class Entry: ...",
        "python/ts/two.py": "def make():\n    class Entry: ...",
        "python/jitney/compat/three.py": "class Entry: ...",
        "python/tests/test_four.py": "class Entry: ...",
    }
    classes = check_names.python_classes(tree(files))
    theirs, gone = (check_names.Allowed(name, "python/jitney/compat/*", "why") for name in ("Entry", "Gone"))
    assert check_names.check_classes(classes, [theirs]) == [
        "python/jitney/one.py:1: class Entry: this class is defined 2 times; qualify its name",
        "python/ts/two.py:2: class Entry: this class is defined 2 times; qualify its name",
    ]
    del classes["Entry"][1]
    stale = ["shared_classes.txt: Gone in python/jitney/compat/* is no longer shared"]
    assert check_names.check_classes(classes, [theirs, gone]) == stale


def test_few_definitions_share_a_name(tree: Tree) -> None:
    files = {f"crates/c{n}/src/lib.rs": "struct Entry;" for n in range(check_names.SHARED_MAX)}
    problems = check_names.check_shared(check_names.types(tree(files)), [check_names.Allowed("Entry", "*", "why")])
    assert problems == ["60 definitions share a name; fewer than 60 may"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pub struct Rider;", "struct Rider: say request, not rider"),
        ("pub(crate) async fn refuse_late() {}", "fn refuse_late: say rejection, not refuse"),
        ("struct Pool { pub seats: u32 }", "field seats: say worker slot, not seats"),
        ("enum Why { Full, Departed(u8) }", "variant Departed: say dispatch, not departed"),
        ("mod lanes { }", "mod lanes: say queue or group, not lanes"),
        ("const TRIPS: u8 = 1;", "const TRIPS: say batch or candidate, not trips"),
    ],
)
def test_replaced_words_are_found_in_rust(tree: Tree, text: str, found: str) -> None:
    problems = check_names.check_words(check_names.rust_names(tree({"crates/one/src/lib.rs": text})), [])
    assert len(problems) == 1
    assert found in problems[0]


def test_replaced_words_are_found_in_python_and_in_file_names(tree: Tree) -> None:
    root = tree({"python/jitney/receipts.py": "class Passenger: ...", "crates/one/src/lanes.rs": "struct Queue;"})
    problems = check_names.check_words([*check_names.rust_names(root), *check_names.python_names(root)], [])
    assert [line.split(";")[0] for line in problems] == [
        "crates/one/src/lanes.rs:1: module lanes: say queue or group, not lanes",
        "python/jitney/receipts.py:1: module receipts: say timing, not receipts",
        "python/jitney/receipts.py:1: class Passenger: say request, not passenger",
    ]


def test_an_exception_covers_its_names_only_and_is_never_stale(tree: Tree) -> None:
    root = tree({"crates/one/src/lib.rs": "fn read_line() {}", "crates/two/src/lib.rs": "fn read_line() {}"})
    names = list(check_names.rust_names(root))
    text = check_names.Allowed("line", "crates/one/*", "a line of text")
    assert len(check_names.check_words(names, [text])) == 1
    both = [text, check_names.Allowed("read_line", "*", "a line of text")]
    assert check_names.check_words(names, both) == []
    stale = check_names.Allowed("seat", "*", "why")
    assert check_names.check_words(names, [*both, stale]) == ["allowed_words.txt: nothing needs seat in *"]


def test_a_default_that_is_spelled_again_is_found() -> None:
    table = """
    QUEUE = Setting::new("queue", N, "a; b").or("100").flag("queue", "N");
    HANDLER = key("handler", TEXT, "the handler");
    """
    declared = check_defaults.with_default(table)
    assert declared == {"QUEUE"}
    again = "fn f(v: &Values) {\n    v.read(&QUEUE)\n        .unwrap_or(100);\n}"
    assert list(check_defaults.spelled_again(again, declared)) == [(2, "QUEUE")]
    others = "fn f(v: &Values) { v.value(&QUEUE); v.read(&HANDLER).unwrap_or_default(); v.read(&QUEUE).map(f); }"
    assert list(check_defaults.spelled_again(others, declared)) == []


def test_an_exception_needs_a_reason(tmp_path: Path) -> None:
    lists = tmp_path / "list.txt"
    lists.write_text("# words\nline in crates/cli/*: a line of text\n")
    assert check_names.read_list(lists) == [check_names.Allowed("line", "crates/cli/*", "a line of text")]
    lists.write_text("line in crates/cli/*\n")
    with pytest.raises(SystemExit, match="without a reason"):
        check_names.read_list(lists)


# -- crates -----------------------------------------------------------------------------------


def needs(*names: str, kind: str | None = None) -> list[dict[str, str | None]]:
    """Dependencies as `cargo metadata` lists them."""
    return [{"name": name, "kind": kind} for name in names]


@pytest.mark.parametrize(
    ("packages", "problem"),
    [
        ({"jitney-batcher": needs("serde")}, "jitney-batcher depends on serde"),
        ({"jitney-engine": needs("jitney-server"), "jitney-server": []}, "a new arrow: jitney-engine -> jitney-server"),
        ({"jitney-engine": needs("hyper")}, "hyper is used by jitney-engine"),
    ],
)
def test_a_dependency_against_the_design_is_found(packages: dict, problem: str) -> None:
    [found] = check_crates.problems(packages)
    assert problem in found


def test_a_dependency_that_nothing_uses_is_found(tree: Tree) -> None:
    root = tree({"crates/engine/src/lib.rs": "use tokio_util::sync::CancellationToken;"})
    packages = {"jitney-engine": needs("tokio-util", "strsim")}
    assert check_crates.unused(packages, root) == ["jitney-engine does not use strsim: take it out of its Cargo.toml"]


def test_dependencies_of_the_design_pass() -> None:
    packages = {
        "jitney-server": needs("jitney-engine", "hyper"),
        "jitney-engine": needs("jitney-batcher"),
        "jitney-batcher": needs("proptest", kind="dev"),
    }
    assert check_crates.problems(packages) == []


# -- instructions -----------------------------------------------------------------------------


def test_a_figure_may_grow_by_the_tolerance_only() -> None:
    recorded = {"serve": 1000}
    assert instructions.verdict({"serve": 1030}, recorded) == []
    assert instructions.verdict({"serve": 900}, recorded) == []
    assert instructions.verdict({"serve": 1031}, recorded) == [
        "serve: 1031 instructions per request, +3.1% of the recorded"
    ]
    assert instructions.verdict({"grpc": 1}, recorded) == ["grpc: no figure is recorded"]


# -- sentences --------------------------------------------------------------------------------

RULES = """# Page
## Rules
- **one**: It has no clock. It is
  fast.
## Next
- Not a rule.
"""


def checked(tree: Tree, check: sentence_checks.Check, files: dict[str, str]) -> list[str]:
    """What is wrong with a page of one rule that is checked so."""
    root = tree({"ARCHITECTURE.md": "# Page\n\n## Rules\n\n- **one**: It is so.\n", **files})
    return list(check_sentences.problems(root, {"ARCHITECTURE.md": {"It is so.": (check,)}}))


def test_every_sentence_of_the_rules_is_read() -> None:
    assert check_sentences.rules(RULES, "## Rules") == ["It has no clock.", "It is fast."]


def test_a_rule_that_nothing_checks_and_a_sentence_that_is_gone_are_found(tree: Tree) -> None:
    root = tree({"ARCHITECTURE.md": RULES})
    assert list(check_sentences.problems(root, {"ARCHITECTURE.md": {"It has no clock.": (), "It was.": ()}})) == [
        "ARCHITECTURE.md no longer says: It was.",
        "ARCHITECTURE.md: nothing checks this: It is fast.",
    ]


BROKEN: dict[str, tuple[sentence_checks.Check, dict[str, str]]] = {
    "code that must not be": (sentence_checks.Never("crates/*", "clock"), rust(lib="fn f() { clock() }")),
    "an exception that nothing needs": (
        sentence_checks.Never("crates/*", "clock", {"a.rs": "why"}),
        rust(a="fn f() {}"),
    ),
    "a test that is gone": (sentence_checks.Tested("it_is_so"), rust(lib="fn it_was_so() {}")),
    "a line that is gone": (sentence_checks.Line("clippy.toml", "sleep"), {"clippy.toml": "nap"}),
    "a static": (sentence_checks.Statics({}), rust(lib="static SEEN: Mutex<u8> = Mutex::new(1);")),
    "a thread's own static": (sentence_checks.Statics({}), rust(lib="thread_local! {\n    static A: u8 = 1;\n}")),
    "a reason for no static": (sentence_checks.Statics({"SEEN": "why"}), rust(lib="static A: [u8; 2] = [1, 2];")),
    "a test that sleeps": (sentence_checks.NoSleep({}), {"tests/test_a.py": "import time\ntime.sleep(0.1)"}),
}
TRUE: dict[str, tuple[sentence_checks.Check, dict[str, str]]] = {
    "a word in a comment": (sentence_checks.Never("crates/*", "clock"), rust(lib="fn f() {} // no clock")),
    "an exception": (sentence_checks.Never("crates/*", "clock", {"a.rs": "why"}), rust(a="fn f() { clock() }")),
    "a test": (sentence_checks.Tested("it_is_so"), rust(lib="#[test]\nfn it_is_so() {}")),
    "a constant": (sentence_checks.Statics({}), rust(lib="static A: [u8; 2] = [1, 2];")),
    "giving way": (sentence_checks.NoSleep({}), {"tests/test_a.py": "import asyncio\nasyncio.sleep(0)"}),
    "a model that sleeps": (sentence_checks.NoSleep({}), {"tests/test_a.py": "MODEL = 'time.sleep(1)'"}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_sentence_that_is_not_true_is_found(tree: Tree, kind: str) -> None:
    assert len(checked(tree, *BROKEN[kind])) == 1


@pytest.mark.parametrize("kind", TRUE)
def test_a_sentence_that_is_true_passes(tree: Tree, kind: str) -> None:
    assert checked(tree, *TRUE[kind]) == []


def test_files_and_modules_that_are_named_must_exist(tree: Tree) -> None:
    page = (
        "See crates/one/src/a.rs, tests/b.rs and `one::a::f`, not crates/one/src/c.rs or `one::c`. `std::fs` is fine."
    )
    root = tree({"docs/page.md": page, "docs/tests/b.rs": "", **rust(lib="mod a;", a="//! In `one::gone`.")})
    assert list(check_sentences.lost_names(root)) == [
        "docs/page.md:1: there is no crates/one/src/c.rs",
        "docs/page.md:1: there is no module one::c",
        "crates/one/src/a.rs:1: there is no module one::gone",
    ]


# -- walks ------------------------------------------------------------------------------------

DUMP = """\
fl=(1) crates/one/src/a.rs
fn=(1) f
16 4
cfi=(2) crates/one/src/b.rs
cfn=(2) g
calls=1 20
+1 90
fl=(2)
fn=(2)
* 90
fe=(3) /rustc/library/alloc/vec.rs
+3 7
"""


def test_each_file_is_booked_what_its_own_lines_cost() -> None:
    assert walk.rust_costs(DUMP) == {("crates/one/src/a.rs", "fn=(1)"): 4, ("crates/one/src/b.rs", "fn=(2)"): 90}


def test_what_runs_by_the_clock_is_no_part_of_a_walk() -> None:
    clock, asked, both = ("clock.rs", "tick"), ("asked.rs", "f"), ("both.rs", "g")
    once = {("once.rs", "h"): 5}
    request = Counter({clock: 90, asked: 5, both: 100})
    idle = Counter({clock: 90, both: 60})
    assert walk.own_files([request | Counter(once), request], [idle], idle) == {"asked.rs", "both.rs"}


def test_a_worker_s_file_has_the_name_that_it_has_in_the_project() -> None:
    assert walk.own_python("/scratch/x/packages/jitney/worker/loop.py") == "python/jitney/worker/loop.py"
