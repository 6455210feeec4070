"""The sentences that are checked, by document, each with what checks it (see `check_sentences`)."""

from __future__ import annotations

from sentence_checks import Check, Line, Never, NoSleep, Statics, Tested

RULES, PROMISES = "ARCHITECTURE.md", "README.md"

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
        "Nothing is unpickled or imported because a peer asked for it, unless the operator allows it.": (
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
                    "loaders/declared.py": "the example input beside the operator's model",
                    "offline/answer_folder.py": "the type of a part's answers, as the same job noted it",
                    "loaders/program_check.py": "the operator's model",
                    "loaders/scikit_learn.py": "the operator's model, which he trusts",
                    "loaders/torch_export.py": "the operator's model",
                    "loaders/torch_script.py": "the operator's model",
                    "cluster/ray_files.py": "the server's own packages and model, on their way to another node",
                    "cluster/ray_placement.py": "the server's own packages, on their way to another node",
                    "ts/torch_handler/text_handler.py": "the vocabulary of the archive",
                    "default_pytorch_inference_handler.py": "the model file of the model directory",
                    "ts/torch_handler/formats.py": "the model file of the archive",
                    "ts/torch_handler/device_trial.py": "a picture that it made itself",
                    "model_archiver/model_packaging_utils.py": "it writes an archive",
                },
            ),
            Tested("test_a_file_of_postscript_starts_no_program"),
            Tested("test_objects_in_an_array_are_not_unpickled"),
            Tested("test_objects_are_unpickled_only_by_the_function_that_says_so"),
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
                    "jobs/src/postgres/connections.rs": "whoever opens a connection opens it for all",
                    "process/fork_server.rs": "one order at a time to the process that forks",
                    "python/preload.rs": "whoever starts the process starts it for all",
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
                    "tests/examples/sagemaker_sdk/": "it stands in for a program that waits so",
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
        "Any other is listed in tools/sentences.py with its reason.": (Line("tools/sentences.py", "Statics("),),
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
                    "engine/ort/maker.rs": "how its sessions are made",
                    "engine/ort/providers.rs": "its execution providers",
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
