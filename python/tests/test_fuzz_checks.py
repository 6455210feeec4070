"""Replays the inputs of fuzz/corpus that Python reads."""

from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("PIL")
CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
FILES = sorted([*CORPUS.glob("client_files/*"), *CORPUS.glob("handle_values/*")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_what_must_hold_for_every_input_holds_for_those_that_were_found(file):
    from fuzz_checks import CHECKS

    CHECKS[file.parent.name](file.read_bytes())
