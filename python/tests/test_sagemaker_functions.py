"""The functions of an `inference.py`, called as a worker calls them, without a server."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from jitney.torchserve.context import Context, RequestProcessor
from jitney.torchserve.row_context import RowContext
from sagemaker_inference import decoder
from sagemaker_inference.errors import GenericInferenceToolkitError, UnsupportedFormatError
from sagemaker_inference.transformer import Transformer


def context_of(*headers: dict[str, str]) -> Context:
    """A context bound to a batch of requests with these headers."""
    context = Context("m", "/m", {}, len(headers), None, "0.12.0")
    context.request_processor = [RequestProcessor(dict(one)) for one in headers]
    context.request_ids = {at: f"id-{at}" for at in range(len(headers))}
    return context


def transformer_of(transform_fn: Any) -> Transformer:
    """A transformer that is initialised already."""
    transformer = Transformer()
    transformer._transform_fn, transformer._initialized = transform_fn, True
    transformer._environment = SimpleNamespace(default_accept="application/json")
    return transformer


def test_a_row_is_alone_in_its_context() -> None:
    whole = context_of({"a": "0"}, {"a": "1"})
    row = RowContext(whole, 1)
    assert (row.get_request_header(0, "a"), row.get_request_id(0), row.request_ids) == ("1", "id-1", {0: "id-1"})
    row.set_response_status(404, "no", 0)
    row.set_response_header(0, "k", "v")
    row.set_all_response_status(418, "tea")
    assert whole.get_response_status(1) == (418, "tea") and whole.get_response_status(0)[0] == 200
    assert whole.get_response_headers(0) == {} and whole.get_response_headers(1) == {"k": "v"}
    with pytest.raises(IndexError, match="one request"):
        row.get_request_header(1, "a")
    row.kept = "mine"
    assert (whole.kept, row.model_name) == ("mine", "m")  # type: ignore[attr-defined]  # A handler invented it.


def test_a_request_that_fails_leaves_the_others_alone() -> None:
    def transform(model: Any, body: Any, content_type: str, accept: str) -> Any:
        if body == b"bad":
            raise GenericInferenceToolkitError(422, "a\nb")
        return body, accept

    context = context_of({"accept": "x/0"}, {"accept": "x/1"}, {"accept": "*/*"})
    rows = [{"body": b"one"}, {"body": b"bad"}, {"body": b"two"}]
    assert transformer_of(transform).transform(rows, context) == [b"one", "a\nb", b"two"]
    assert [context.get_response_status(at)[0] for at in range(3)] == [200, 422, 200]
    assert context.get_response_status(1)[1] == "a b"
    assert [context.get_response_content_type(at) for at in (0, 2)] == ["x/0", "application/json"]


def test_a_lack_of_memory_is_the_workers_business() -> None:
    def transform(model: Any, body: Any, content_type: str, accept: str) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        transformer_of(transform).transform([{"body": b""}], context_of({}))


def test_a_traceback_is_shown_only_where_errors_are_debugged() -> None:
    def transform(model: Any, body: Any, content_type: str, accept: str) -> Any:
        raise KeyError("gone")

    context = context_of({})
    assert transformer_of(transform).transform([{"body": b""}], context) == ["'gone'"]
    context.debug_errors = True  # type: ignore[attr-defined]  # The worker's context has it.
    assert "Traceback" in transformer_of(transform).transform([{"body": b""}], context)[0]


def test_sparse_matrices_are_read_and_their_indices_are_not_believed() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.dia_matrix, sparse.bsr_matrix):
        buffer = io.BytesIO()
        sparse.save_npz(buffer, kind(numpy.array([[0, 5], [7, 0]])))
        read = decoder.decode(buffer.getvalue(), "application/x-npz")
        assert read.format == kind((1, 1)).format and read.toarray().tolist() == [[0, 5], [7, 0]]
    hostile = io.BytesIO()
    parts = {"indices": [0, 99], "indptr": [0, 1, 2], "format": numpy.array(b"csr"), "shape": [2, 2], "data": [1, 2]}
    numpy.savez(hostile, **{name: numpy.asarray(part) for name, part in parts.items()})
    with pytest.raises(GenericInferenceToolkitError, match="npz file is rejected") as raised:
        decoder.decode(hostile.getvalue(), "application/x-npz")
    assert raised.value.status_code == 400
    with pytest.raises(UnsupportedFormatError, match="input_fn"):
        decoder.decode(b"", "application/x-parquet")
