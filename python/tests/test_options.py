"""The options of decorators are the server's settings, by the same names, bounds and words.

The page of the settings is made from their declarations and compared with them by a test of `crates/settings`, so what
agrees with the page agrees with the server.
"""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from jitney.call.errors import DefinitionError
from jitney.definition.options import DEVICES, FLAGS, FRACTION_MIN, RAY_KEYS, WHOLE, WORDS, Options

PAGE = Path(__file__).parents[2] / "docs/reference/settings.md"
OTHER_NAMES = {
    "concurrency": "max_concurrent_batches",
    "device": "device_type",
    "max_batch_delay_ms": "max_batch_delay",
    "response_timeout_s": "response_timeout",
    "startup_timeout_s": "startup_timeout",
    "sequence_max_idle_ms": "sequence_max_idle",
}
OF_DEFINITIONS = {
    "batch_dim",
    "bucket",
    "examples",
    "health_routes",
    "inputs",
    "metric_names",
    "mount",
    "name",
    "openai",
    "outputs",
    "overlap",
    "padded",
    "ray",
    "raw",
    "route",
    "route_shared",
    "task_routes",
    "version",
    "warm_up",
}
"""Options that are no setting of a model: they say how a definition is called, described and found."""


def settings() -> dict[str, tuple[str, str]]:
    """What values each setting takes and where it is given, by name."""
    models = PAGE.read_text().split("## Models")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]*) \| [^|]* \| ([^|]*) \|", models)
    return {name: (values, where) for name, values, where in rows}


def values_of(option: str) -> str:
    return settings()[OTHER_NAMES.get(option, option)][0]


def test_every_option_is_a_setting_or_belongs_to_definitions():
    options = {field.name for field in fields(Options)}
    known = {option for option in options if OTHER_NAMES.get(option, option) in settings()}
    assert options - known == OF_DEFINITIONS


@pytest.mark.parametrize("option", sorted(WHOLE.keys() - OF_DEFINITIONS - {"response_timeout_s", "startup_timeout_s"}))
def test_whole_numbers_have_the_bounds_of_their_setting(option):
    from_one = ("a whole number", "a whole number above zero", f"a whole number from 1 to {WHOLE[option]}")
    assert values_of(option) in from_one


@pytest.mark.parametrize("option", sorted(WORDS.keys() - OF_DEFINITIONS))
def test_words_are_those_of_the_setting(option):
    words = dict.fromkeys(DEVICES[word] if option == "device" else word for word in WORDS[option])
    assert values_of(option) == f"one of {', '.join(words)}"


def test_flags_and_fractions_are_those_of_the_settings():
    options = [field.name for field in fields(Options) if field.name not in OF_DEFINITIONS]
    assert {option for option in options if values_of(option) == "true or false"} == set(FLAGS) - OF_DEFINITIONS
    assert values_of("gpu_memory_fraction") == f"a number from {FRACTION_MIN} to 1"


def test_processors_are_spelled_as_in_the_setting():
    with pytest.raises(DefinitionError, match=values_of("cpus")):
        Options(cpus="many")
    for text in ("auto", "none", "3", "0-3,8"):
        assert Options(cpus=text).cpus == text


def test_the_place_in_a_ray_cluster_has_the_settings_of_ray():
    assert {name for name, (_, where) in settings().items() if "`ray." in where} == set(RAY_KEYS)
