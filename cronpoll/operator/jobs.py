"""Jobs as an API server has them: the one that is created for a run, and what one says about
itself."""

from __future__ import annotations

import copy
import re
from datetime import datetime
from typing import Any, Final

from cronpoll.core.text import utc_text
from cronpoll.operator.api import (
    KEPT,
    OF_CHOSEN,
    OF_GENERATION,
    OF_KRONJOB,
    OF_PERIOD,
    Object,
)
from cronpoll.operator.decision import Job
from cronpoll.operator.fields import API_VERSION, KIND
from cronpoll.operator.kronjob import KronJob
from cronpoll.operator.ledger import Run

_GENERATION: Final = re.compile("[0-9]{1,18}")
"""Anybody may write into a Job."""


def job_manifest(kronjob: KronJob, run: Run) -> Object:
    """The Job of a run: the template, under the name of the period, owned by the KronJob, and
    held."""
    given = kronjob.template.get("metadata", {})
    spec: dict[str, Any] = {**copy.deepcopy(kronjob.template["spec"]), "suspend": True}
    marks = {OF_PERIOD: utc_text(run.period), OF_CHOSEN: utc_text(run.due_at)}
    # What runs can see which period it runs for (fieldRef: metadata.annotations).
    pod = spec.setdefault("template", {})
    metadata = pod["metadata"] = {**(pod.get("metadata") or {})}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **marks}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": run.job,
            "namespace": kronjob.namespace,
            "labels": {**(given.get("labels") or {}), OF_KRONJOB: kronjob.name},
            "annotations": {
                **(given.get("annotations") or {}),
                **marks,
                OF_GENERATION: str(run.generation),
            },
            "finalizers": [KEPT],
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": kronjob.name,
                    "uid": kronjob.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def job_of(found: Object) -> Job:
    """What is known of a Job."""
    metadata, status = found["metadata"], found.get("status") or {}
    owner = next(
        (each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")),
        "",
    )
    state, ended_at, error = "running", None, ""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = "succeeded" if condition["type"] == "Complete" else "failed"
            ended = condition.get("lastTransitionTime") or status.get("completionTime")
            ended_at = None if ended is None else datetime.fromisoformat(ended)
            parts = [condition.get("reason"), condition.get("message")]
            error = ": ".join(part for part in parts if part) if state == "failed" else ""
    started = status.get("startTime")
    generation = (metadata.get("annotations") or {}).get(OF_GENERATION, "")
    kept = KEPT in (metadata.get("finalizers") or ())
    held = kept and found["spec"].get("suspend") is True
    return Job(
        metadata["name"],
        metadata["uid"],
        owner,
        state,  # type: ignore[arg-type]
        ended_at,
        error[:500],
        kept,
        "deletionTimestamp" in metadata,
        None if started is None else datetime.fromisoformat(started),
        held,
        str(metadata.get("resourceVersion", "")) if held else "",
        int(generation) if _GENERATION.fullmatch(generation) else 0,
    )


def owner_key(found: Object) -> tuple[str, str]:
    """Namespace and name of the KronJob that a Job is labelled with."""
    metadata = found["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get(OF_KRONJOB, "")
