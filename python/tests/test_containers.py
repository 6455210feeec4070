"""Arrays, tensors and frames: joined and cut again they are what they were, whatever the axis."""

from __future__ import annotations

import pytest

import jitney
from jitney.check.examination import same
from jitney.testing import load
from jitney.values.containers import container_of

np = pytest.importorskip("numpy")


def arrays(dtype: str, dim: int):
    for rows in (1, 3, 2):
        shape = [2, 4, 5]
        shape[dim] = rows
        yield np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "complex64", "U3"])
def test_numpy_arrays_come_back_as_they_were(dtype, dim):
    given = list(arrays(dtype, dim))
    container = container_of(given[0])
    joined = container.join(given, dim)
    assert joined.dtype == given[0].dtype
    start = 0
    for one in given:
        end = start + container.rows(one, dim)
        back = container.cut(joined, start, end, dim)
        assert back.dtype == one.dtype
        assert np.array_equal(back, one)
        start = end


def test_pandas_frames_come_back_as_they_were():
    pd = pytest.importorskip("pandas")
    given = [pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), pd.DataFrame({"a": [3], "b": ["z"]})]

    @jitney.batch
    def echo(frame: pd.DataFrame) -> pd.DataFrame:
        assert list(frame.index) == list(range(len(frame)))
        return frame

    with load(echo) as model:
        back = model.batch([{"frame": one} for one in given])
        assert model.sizes == [3]
    for one, other in zip(given, back):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_torch_tensors_come_back_as_they_were(dtype, dim):
    torch = pytest.importorskip("torch")
    shapes = [(1, 3), (4, 3), (2, 3)] if dim == 0 else [(3, 1), (3, 4), (3, 2)]
    given = [torch.arange(rows * columns).reshape(rows, columns).to(getattr(torch, dtype)) for rows, columns in shapes]

    @jitney.batch(batch_dim=dim)
    def echo(x: torch.Tensor) -> torch.Tensor:
        assert x.shape[dim] == 7
        return x

    with load(echo) as model:
        back = model.batch([{"x": one} for one in given])
        assert model.sizes == [7]
    assert all(one.dtype == other.dtype and torch.equal(one, other) for one, other in zip(given, back))


def test_a_dictionary_of_tensors_arrives_as_keyword_arguments_and_other_dtypes_are_batched_apart():
    torch = pytest.importorskip("torch")

    @jitney.batch
    def score(ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": (ids * mask).sum(1), "kept": mask}

    with load(score) as model:
        one, two, wide, odd = model.batch(
            [
                {"ids": torch.tensor([[1, 2]]), "mask": torch.tensor([[1, 0]])},
                {"mask": torch.tensor([[1, 1], [0, 1]]), "ids": torch.tensor([[3, 4], [5, 6]])},
                {"ids": torch.ones(1, 3), "mask": torch.ones(1, 3)},
                {"ids": torch.ones(2, 2), "mask": torch.ones(1, 2)},
            ]
        )
        assert model.sizes == [3, 1]
    assert [one["sum"].tolist(), two["sum"].tolist(), wide["sum"].tolist()] == [[1], [7, 6], [3.0]]
    assert two["kept"].tolist() == [[1, 1], [0, 1]]
    assert isinstance(odd, jitney.BadInput)


def test_pandas_columns_come_back_as_they_were():
    pd = pytest.importorskip("pandas")
    given = [pd.Series([1.5, 2.5]), pd.Series([3.5])]

    @jitney.batch
    def echo(column: pd.Series) -> pd.Series:
        return column

    with load(echo) as model:
        back = model.batch([{"column": one} for one in given])
        assert model.sizes == [3]
    for one, other in zip(given, back):
        pd.testing.assert_series_equal(one, other, check_names=False)


def test_anything_else_is_a_list_of_what_came():
    given = [[1, 2], "text", b"bytes", {"a": 1}, None, {3}]

    @jitney.batch
    def echo(x):
        return x

    with load(echo) as model:
        assert model.batch([{"x": one} for one in given]) == given
        assert model.sizes == [6]


def test_rows_are_joined_and_cut_by_every_callers_own_number_of_rows():
    @jitney.batch(max_batch_size=100)
    def total(x: np.ndarray) -> np.ndarray:
        return x.sum(axis=1)

    with load(total) as model:
        given = [np.full((rows, 2), rows) for rows in (1, 3, 2)]
        back = model.batch([{"x": one} for one in given])
        assert model.sizes == [6]
    assert [one.tolist() for one in back] == [[2], [6, 6, 6], [4, 4]]


def test_input_and_output_may_have_different_batch_dimensions():
    @jitney.batch(batch_dim=(1, 0))
    def transpose(x: np.ndarray) -> np.ndarray:
        return x.T

    with load(transpose) as model:
        back = model.batch([{"x": np.zeros((4, rows))} for rows in (2, 1)])
    assert [one.shape for one in back] == [(2, 4), (1, 4)]


@pytest.mark.parametrize("odd", [np.zeros((1, 3)), np.zeros((1, 2), "int64"), np.zeros((1, 2, 1)), [[0.0, 0.0]]])
def test_arrays_that_do_not_fit_run_in_a_call_of_their_own(odd):
    seen = []

    @jitney.batch
    def note(x):
        seen.append((type(x).__name__, getattr(x, "shape", None), str(getattr(x, "dtype", ""))))
        return x

    with load(note) as model:
        back = model.batch([{"x": np.zeros((1, 2))}, {"x": odd}, {"x": np.ones((2, 2))}])
    assert len(seen) == 2
    assert seen[0] == ("ndarray", (3, 2), "float64")
    assert same(back[1], odd)
    assert same(back[2], np.ones((2, 2)))


def test_an_array_without_the_batch_dimension_fails_alone():
    @jitney.batch(batch_dim=1)
    def echo(x: np.ndarray) -> np.ndarray:
        return x

    with load(echo) as model:
        bad, good = model.batch([{"x": np.zeros(3)}, {"x": np.zeros((2, 2))}])
    assert isinstance(bad, jitney.BadInput)
    assert good.shape == (2, 2)


def test_a_dictionary_of_arrays_arrives_as_keyword_arguments():
    @jitney.batch
    def masked(ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
        return {"sum": (ids * mask).sum(axis=1), "first": ids[:, 0]}

    with load(masked) as model:
        given = [{"mask": np.ones((rows, 2)), "ids": np.full((rows, 2), rows)} for rows in (1, 2)]
        one, two = model.batch(given)
        bad = model.batch([{"ids": np.ones((2, 2)), "mask": np.ones((3, 2))}, given[0]])
    assert (one["sum"].tolist(), two["first"].tolist()) == ([2], [2, 2])
    assert isinstance(bad[0], jitney.BadInput)
    assert bad[1]["sum"].tolist() == [2]


def test_an_item_with_more_rows_than_a_call_takes_is_run_in_parts():
    @jitney.batch(max_batch_size=4)
    def double(x: np.ndarray) -> np.ndarray:
        return x * 2

    with load(double) as model:
        small, large = model.batch([{"x": np.ones((1, 1))}, {"x": np.arange(10).reshape(10, 1)}])
        assert sorted(model.sizes) == [1, 2, 4, 4] or sorted(model.sizes) == [1, 2, 3, 4]
    assert large.ravel().tolist() == list(range(0, 20, 2))
    assert small.tolist() == [[2.0]]


def test_a_wrong_number_of_rows_answers_no_item():
    @jitney.batch
    def short(x: np.ndarray) -> np.ndarray:
        return x[:-1]

    with load(short) as model, pytest.raises(jitney.WrongLength, match="returned 2 rows for 3 rows"):
        model.batch([{"x": np.zeros((1, 2))}, {"x": np.zeros((2, 2))}])


def test_a_list_of_arrays_is_given_one_by_one_and_an_array_answers_lists_by_row():
    @jitney.batch
    def stacked(x: list[np.ndarray]) -> np.ndarray:
        return np.stack(x).max(axis=1)

    with load(stacked) as model:
        assert model.batch([{"x": np.array([1, 5])}, {"x": np.array([7, 2])}]) == [5, 7]


def test_the_base_package_imports_no_library():
    import subprocess
    import sys

    code = (
        "import sys, jitney, jitney.testing, jitney.worker.defined;"
        "print(sorted({'numpy', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
