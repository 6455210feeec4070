"""ts.utils.util and ts.handler_utils.utils: what handlers use of them."""

from __future__ import annotations

import json
import sys

import pytest

from jitney.torchserve import failures
from ts.handler_utils.utils import import_class
from ts.service import Service
from ts.utils import util


@pytest.mark.parametrize(
    "content, expected",
    [
        ({"0": "cat", "1": "dog"}, {"0": "cat", "1": "dog"}),
        ({"0": ["n01", "cat"]}, {"0": "cat"}),
        ({"object_type_names": ["cat", "dog"]}, {"0": "cat", "1": "dog"}),
    ],
)
def test_label_files_of_every_form_are_read(tmp_path, content, expected):
    path = tmp_path / "index_to_name.json"
    path.write_text(json.dumps(content))
    assert util.load_label_mapping(str(path)) == expected


def test_a_missing_label_file_is_no_mapping_and_a_wrong_one_an_error(tmp_path):
    assert util.load_label_mapping(str(tmp_path / "none.json")) is None
    for content in ([1], {"0": 7}):
        path = tmp_path / "index_to_name.json"
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError):
            util.load_label_mapping(str(path))


def test_probabilities_are_labelled():
    assert util.map_class_to_label([[0.9, 0.1]]) == [{"0": 0.9, "1": 0.1}]
    assert util.map_class_to_label([[0.9, 0.1]], {"4": "cat", "2": "dog"}, [[4, 2]]) == [{"cat": 0.9, "dog": 0.1}]
    assert util.map_class_to_label([]) == []
    with pytest.raises(ValueError):
        util.map_class_to_label([[1]], ["cat"])


def test_missing_pyyaml_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match="needs PyYAML"):
        util.get_yaml_config(str(tmp_path / "config.yaml"))


def test_small_things_are_what_torchserve_offers():
    assert util.CLEANUP_REGEX.sub("", "<b>bold</b>") == "bold"
    assert util.check_valid_pt2_backend("inductor") and not util.check_valid_pt2_backend("magic")
    assert import_class("json.JSONDecoder") is import_class("JSONDecoder", "json") is json.JSONDecoder
    error = util.PredictionException("no", 404)
    assert (error.message, error.error_code, str(error)) == ("no", 404, "no : 404")
    assert util.list_classes_from_module(failures, Exception) == [failures.ClientsLeft, util.PredictionException]


def test_a_deprecated_function_warns_and_works():
    @util.deprecated("0.9", "new")
    def old():
        return 5

    with pytest.warns(PendingDeprecationWarning, match="use new instead"):
        assert old() == 5


def test_a_service_calls_its_entry_point_with_its_context():
    service = Service("m", "/m", {}, lambda data, context: [context.model_name for _ in data], None, 1)
    assert service.handle([{}]) == ["m"]
