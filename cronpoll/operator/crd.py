"""The CustomResourceDefinition of KronJobs, made from the table of fields."""

from __future__ import annotations

import copy
from typing import Any

from cronpoll.operator.fields import GROUP, KIND, PLURAL, RULES, VERSION, Rule, Schema
from cronpoll.operator.kronjob import SPEC_SCHEMA


def _rules(rules: tuple[Rule, ...]) -> list[Schema]:
    return [
        {
            "rule": rule.cel,
            "message": rule.message,
            **({"messageExpression": rule.message_cel} if rule.message_cel else {}),
        }
        for rule in rules
    ]


def _text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def _time() -> Schema:
    return {"type": "string", "format": "date-time"}


def _period() -> dict[str, Schema]:
    return {
        "period": _text("Its nominal minute in UTC."),
        "chosenTime": _time(),
        "outcome": _text("executed, skipped, missed or unschedulable; it is final."),
        "reason": _text(),
        "job": _text(),
        "result": _text("Of the Job: running, succeeded, failed, replaced or deleted."),
        "count": {
            "type": "integer",
            "description": "Of many periods at once how many; this is the last.",
        },
    }


def _listed(properties: dict[str, Schema], description: str) -> Schema:
    return {
        "type": "array",
        "description": description,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "properties": properties},
    }


def _status() -> Schema:
    return {
        "type": "object",
        "description": "Written by kron-operator alone.",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "settledUntil": {
                **_time(),
                "description": "Everything due up to here has got its outcome.",
            },
            "next": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "description": "The next period, and the second that is chosen for it.",
                "properties": {
                    "period": _text(),
                    "nominal": _text("The minute of the period in the time zone."),
                    "chosenTime": _time(),
                    "seedHash": _text("What the choice was drawn from."),
                },
            },
            "last": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "description": "What became of the last period.",
                "properties": _period(),
            },
            "active": _listed(
                {"job": _text(), "period": _text(), "chosenTime": _time(), "uid": _text()},
                "The Jobs that run, or are about to be created.",
            ),
            "handled": _listed(_period(), "What became of the last ten periods, newest first."),
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                    "properties": {
                        "type": _text(),
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "reason": _text(),
                        "message": _text(),
                        "observedGeneration": {"type": "integer", "format": "int64"},
                        "lastTransitionTime": _time(),
                    },
                },
            },
            "ledger": {
                "type": "object",
                "description": "What the operator decides by. It keeps a period from being "
                "executed a second time: do not edit it.",
                "x-kubernetes-preserve-unknown-fields": True,
                # One field for whoever tracks who owns what: it is written as a whole.
                "x-kubernetes-map-type": "atomic",
            },
        },
    }


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "jsonPath": path,
        **({"priority": priority} if priority else {}),
    }


def crd() -> dict[str, Any]:
    spec = copy.deepcopy(SPEC_SCHEMA)
    spec["x-kubernetes-validations"] = _rules(RULES["spec",])
    spec["properties"]["schedule"]["x-kubernetes-validations"] = _rules(RULES["spec", "schedule"])
    schema = {
        "type": "object",
        "description": "Creates a Job for each period of a schedule, at most one, and accounts "
        "for every period.",
        "required": ["spec"],
        "x-kubernetes-validations": _rules(RULES[()]),
        "properties": {
            "apiVersion": _text(),
            "kind": _text(),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _status(),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            _column("Schedule", ".spec.schedule"),
            _column("Zone", ".spec.timeZone", priority=1),
            _column("Suspend", ".spec.suspend", "boolean"),
            _column("Next", ".status.next.chosenTime"),
            _column("Last", ".status.last.period"),
            _column("Outcome", ".status.last.outcome"),
            _column("Result", ".status.last.result"),
            _column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Reason", ".status.last.reason", priority=1),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "kronjob",
                "shortNames": ["kj"],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }
