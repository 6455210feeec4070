"""What `jitney check` prints: lines for people, or one JSON document, and the exit status that goes with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jitney.check.check import PartReport
from jitney.check.examination import Report

FOUND = 1
"""The exit status if there are mistakes, or if nothing could be run."""


def write(parts: Sequence[PartReport], as_json: bool) -> tuple[str, int]:
    """The text, and the exit status."""
    reports = [report for part in parts for report in part.endpoints]
    wrong = any(report.mistakes for report in reports)
    ran = any(report.ran for report in reports)
    text = json.dumps(_document(parts, wrong, ran), indent=2) if as_json else "\n".join(_lines(parts, wrong or ran))
    return text, FOUND if wrong or not ran else 0


def _lines(parts: Sequence[PartReport], told: bool) -> list[str]:
    lines = []
    for part in parts:
        lines += [f"{part.model}: {remark}" for remark in part.remarks]
        for report in part.endpoints:
            lines.append(f"{part.model}/{report.endpoint}")
            for mark, found in (("ok", report.passed), ("note", report.remarks), ("WRONG", report.mistakes)):
                lines += [f"  {mark:<6}{one}" for one in found]
    return lines if told else [*lines, "Nothing could be run, so that nothing is known about batches."]


def _document(parts: Sequence[PartReport], wrong: bool, ran: bool) -> dict[str, Any]:
    return {
        "ok": ran and not wrong,
        "models": [
            {"name": part.model, "notes": part.remarks, "endpoints": [_endpoint(one) for one in part.endpoints]}
            for part in parts
        ],
    }


def _endpoint(report: Report) -> dict[str, Any]:
    return {
        "name": report.endpoint,
        "ran": report.ran,
        "passed": report.passed,
        "notes": report.remarks,
        "mistakes": report.mistakes,
    }
