"""`jitney.map_batches`: a model over a Ray Dataset, as one more step of it.

    answered = jitney.map_batches(ray.data.read_parquet("s3://rows/"), "app:model", columns=["text"])

Each actor of the step runs the `jitney` program, so every kind of model works. The columns `output` and `error` are
added, of which each row has one.
"""

from __future__ import annotations

from typing import Any

from jitney.call.errors import InferError
from jitney.offline.fed_program import FedProgram, outcome_columns
from jitney.offline.infer import ERROR, OUTPUT
from jitney.offline.parquet import json_line

ROWS = 4096
"""Rows that an actor is given at a time; the program makes batches of them."""


def map_batches(
    dataset: Any,
    model: Any,
    *,
    columns: list[str] | None = None,
    endpoint: str | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    program: str | None = None,
    **options: Any,
) -> Any:
    """The dataset with the columns `output` and `error` added.

    Args:
        dataset: a Ray Dataset.
        model: what `jitney.infer` takes, found on all nodes; a decorated function or class travels with the job.
        columns: those that the model gets; all, if they are not named.
        endpoint: of a model that has several.
        workers: actors; without a number Ray starts as many as the cluster has room for and the rows need.
        batch_size: most rows in a batch of the model.
        program: the `jitney` program on the nodes, if not the one beside their Python or on their path.
        options: of `Dataset.map_batches`, as `num_cpus` and `num_gpus`.
    """
    try:
        import ray.data
    except ImportError:
        raise ImportError("jitney.map_batches needs Ray: pip install 'jitney[ray]'") from None
    if not isinstance(dataset, ray.data.Dataset):
        raise InferError(f"a {type(dataset).__name__} is no Ray Dataset; for other rows there is jitney.infer")
    flags = {"endpoint": endpoint, "batch-size": batch_size, "program": program}
    pool = ray.data.ActorPoolStrategy(size=workers) if workers else ray.data.ActorPoolStrategy(min_size=1)
    return dataset.map_batches(
        BatchRunner,
        fn_constructor_kwargs={"model": model, "columns": columns, "flags": flags},
        **{"batch_size": ROWS, "batch_format": "pyarrow", "compute": pool, **options},
    )


class BatchRunner:
    """An actor: the jitney program, loaded once and fed block by block."""

    def __init__(self, model: Any, columns: list[str] | None, flags: dict[str, Any]) -> None:
        self._columns = columns
        self._program = FedProgram(model, **flags)

    def __call__(self, table: Any) -> Any:
        """The rows with their outcomes."""
        for name in (OUTPUT, ERROR):
            if name in table.column_names:
                raise InferError(f"the dataset has a column {name!r} already; rename it or leave it out first")
        rows = (table if self._columns is None else table.select(self._columns)).to_pylist()
        fields, columns = outcome_columns(self._program.outcomes([json_line(row).encode() for row in rows]))
        for field, column in zip(fields, columns):
            table = table.append_column(field, column)
        return table

    def __del__(self) -> None:
        if hasattr(self, "_program"):
            self._program.close()
