"""Jobs as an API server has them: the one that is created for a run, and what one says about
itself."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

from cronpoll.core.text import utc_text
from cronpoll.operator.api import KEPT, OF_CHOSEN, OF_KRONJOB, OF_PERIOD, Object
from cronpoll.operator.decision import Job
from cronpoll.operator.fields import API_VERSION, KIND
from cronpoll.operator.kronjob import KronJob
from cronpoll.operator.ledger import Run


def job_manifest(kronjob: KronJob, run: Run) -> Object:
    """The Job of a run: the template, under the name of the period, owned by the KronJob."""
    given = kronjob.template.get("metadata", {})
    spec: dict[str, Any] = copy.deepcopy(kronjob.template["spec"])
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
            "annotations": {**(given.get("annotations") or {}), **marks},
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
    created = metadata.get("creationTimestamp")
    state, ended_at, error = "running", None, ""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = "succeeded" if condition["type"] == "Complete" else "failed"
            ended = condition.get("lastTransitionTime") or status.get("completionTime")
            ended_at = None if ended is None else datetime.fromisoformat(ended)
            parts = [condition.get("reason"), condition.get("message")]
            error = ": ".join(part for part in parts if part) if state == "failed" else ""
    return Job(
        metadata["name"],
        metadata["uid"],
        owner,
        state,  # type: ignore[arg-type]
        ended_at,
        error[:500],
        KEPT in (metadata.get("finalizers") or ()),
        "deletionTimestamp" in metadata,
        None if created is None else datetime.fromisoformat(created),
    )


def owner_key(found: Object) -> tuple[str, str]:
    """Namespace and name of the KronJob that a Job is labelled with."""
    metadata = found["metadata"]
    return metadata["namespace"], (metadata.get("labels") or {}).get(OF_KRONJOB, "")
