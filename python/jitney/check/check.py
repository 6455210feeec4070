"""`jitney check`: runs a definition without a server and looks for batching mistakes.

A model that is right for one item may be wrong for a batch: too few outputs, outputs that follow
the position instead of the item, outputs that depend on the other items. Each mistake is looked for
with example items: those given, those of the decorator, or ones made up from the type hints.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jitney.check.examination import Examination, Report
from jitney.definition.application import Application
from jitney.definition.definition import Definition, Endpoint
from jitney.execution.execution import Instance


@dataclass
class PartReport:
    """What was found about one part of an application."""

    model: str
    remarks: list[str]
    endpoints: list[Report]


def check(application: Application, given: Sequence[dict[str, Any]] = (), endpoint: str = "") -> list[PartReport]:
    """Examines all parts; examples are for the one that was asked for, and so is an endpoint's name."""
    root = application.root
    if endpoint:
        root.definition.endpoint(endpoint)  # Raises a LookupError with the names that there are.
    with contextlib.ExitStack() as ends:
        instances = _instances(application, ends)
        reports = []
        for part in (root,) if endpoint else application.parts:
            found = _examine(instances[part.name], given if part is root else (), endpoint)
            reports.append(PartReport(part.name, part.definition.remarks(), found))
        return reports


def _instances(application: Application, ends: contextlib.ExitStack) -> dict[str, Instance]:
    """The objects of all parts; the calls of each go to the others in this process."""
    root, instances, resolve = application.root, {}, None
    if root.links:
        from jitney.check.local_parts import LocalParts

        local = LocalParts(application, Instance)
        ends.callback(local.close)
        instances, resolve = dict(local.instances), local.resolver(root)
    instance = Instance(root.definition, resolve)
    ends.callback(instance.close)
    return {**instances, root.name: instance}


def examine(definition: Definition, given: Sequence[dict[str, Any]] = ()) -> list[Report]:
    """One report per endpoint of a definition that calls no others."""
    instance = Instance(definition)
    try:
        return _examine(instance, given, "")
    finally:
        instance.close()


def _examine(instance: Instance, given: Sequence[dict[str, Any]], endpoint: str) -> list[Report]:
    definition = instance.definition
    return [
        Examination(instance, one, _meant_for(one, definition, given, endpoint)).report()
        for one in definition.endpoints
        if not endpoint or one.name == endpoint
    ]


def _meant_for(
    endpoint: Endpoint, definition: Definition, given: Sequence[dict[str, Any]], asked: str
) -> list[dict[str, Any]]:
    """The examples with an endpoint's parameters; one that fits no endpoint is given to all, which then report it."""

    def fits(one: Endpoint, sample: dict[str, Any]) -> bool:
        return one.shape.takes_any or sample.keys() <= {param.name for param in one.params}

    known = definition.endpoints
    if len(known) == 1 or asked:
        return list(given)
    return [sample for sample in given if fits(endpoint, sample) or not any(fits(one, sample) for one in known)]


FOUND = 1
"""The exit status if there are mistakes, or if nothing could be run."""


def told(parts: Sequence[PartReport], as_json: bool) -> tuple[str, int]:
    """What is printed, lines for people or one JSON document, and the exit status that goes with it."""
    reports = [report for part in parts for report in part.endpoints]
    wrong = any(report.mistakes for report in reports)
    ran = any(report.ran for report in reports)
    text = json.dumps(_document(parts, wrong, ran), indent=2) if as_json else "\n".join(_lines(parts, wrong or ran))
    return text, FOUND if wrong or not ran else 0


def _lines(parts: Sequence[PartReport], known: bool) -> list[str]:
    lines = []
    for part in parts:
        lines += [f"{part.model}: {remark}" for remark in part.remarks]
        for report in part.endpoints:
            lines.append(f"{part.model}/{report.endpoint}")
            for mark, found in (("ok", report.passed), ("note", report.remarks), ("WRONG", report.mistakes)):
                lines += [f"  {mark:<6}{one}" for one in found]
    return lines if known else [*lines, "Nothing could be run, so that nothing is known about batches."]


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
