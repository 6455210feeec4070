"""How an input is cut into parts for a cluster: every row belongs to exactly one."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitney import infer_ray


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("position", [0, 2])
def test_every_row_is_in_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, position: int) -> None:
    monkeypatch.setattr(infer_ray, "PART_BYTES_MIN", size)
    monkeypatch.setattr(infer_ray, "PART_BYTES_MAX", size)
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'1\n22\n\n  \r\n{"a": 3}\r\n\n4')
    parts = infer_ray.ranges(position, file.stat().st_size, 1)
    found = [
        line
        for begin, end in parts
        for line in infer_ray.lines({"path": file, "begin": begin, "end": end, "first": begin == position})
    ]
    assert found == [b"1", b"22", b'{"a": 3}', b"4"][1 if position else 0 :]


def test_an_empty_input_has_no_parts() -> None:
    assert list(infer_ray.ranges(0, 0, 3)) == []
