"""From CronJobs, and from the command tasks of a registry file, to KronJobs. What has no exact
translation is a remark.

A KronJob comes suspended: the other one has to be suspended first, and then this one resumed, so
that no period is run by both. (If that is forgotten: a Job of either has the same name for the same
minute, so the second is refused.)
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from cronpoll.core.dialect import UntranslatableError, timing, translated
from cronpoll.core.periods import Constraints, Distribution, Spread
from cronpoll.core.values import duration_text
from cronpoll.operator.fields import API_VERSION, CONCURRENCY, KIND, NAME_LIMIT

_ZONE: Final = re.compile(r"^(?:CRON_)?TZ=(\S+)\s+(.*)$")
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MS: Final = timedelta(milliseconds=1)
_SAME: Final = (
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "jobTemplate",
)


_NOTHING_LIKE_IT: Final = (
    "on_change",
    "interrupted",
    "on_start",
    "description",
    "lock",
    "tags",
    "env_file",
    "inherit_env",
    "success_codes",
    "nice",
    "umask",
    "limits",
    "notify",
)
"""Options of a task. `after` excludes a cron."""


class Untranslated(NamedTuple):
    name: str
    reason: str


class Translated(NamedTuple):
    manifest: dict[str, Any]
    remarks: tuple[str, ...]


def of_cronjob(cronjob: Mapping[str, Any]) -> Translated | Untranslated:
    """A CronJob of batch/v1 as a KronJob."""
    metadata = cronjob.get("metadata") or {}
    name = str(metadata.get("name", ""))
    spec = cronjob.get("spec")
    if cronjob.get("kind") != "CronJob" or not isinstance(spec, dict):
        return Untranslated(name, f"expected a CronJob, not {cronjob.get('kind')!r}")
    remarks = []
    text = str(spec.get("schedule", "")).strip()
    zone = spec.get("timeZone")
    if (found := _ZONE.match(text)) is not None:
        zone, text = found[1], found[2]
    try:
        # Its controller takes day and weekday as unrestricted only if they are `*`, and `?` for it.
        fields = " ".join("*" if word == "?" else word for word in text.split())
        translated(fields)
        when = timing(fields, plain_star=True)
    except UntranslatableError as error:
        return Untranslated(name, f"schedule {text!r}: {error}")
    wanted: dict[str, Any] = {"schedule": when.cron}
    if when.cron != text:
        remarks.append(f"schedule {text!r} is {when.cron!r} in the strict language")
    if zone is None:
        remarks.append(
            "it has no timeZone: the schedule is read in UTC, while a CronJob is read in the zone "
            "of its controller"
        )
    else:
        wanted["timeZone"] = zone
    if when.only is not None:
        wanted["only"] = {when.only.name: list(when.only.values)}
    wanted["concurrencyPolicy"] = spec.get("concurrencyPolicy", "Allow")
    wanted |= {key: copy.deepcopy(spec[key]) for key in _SAME if spec.get(key) is not None}
    if spec.get("suspend"):
        remarks.append("the CronJob is suspended")
    wanted["suspend"] = True
    kept = {key: dict(metadata[key]) for key in ("labels", "annotations") if metadata.get(key)}
    if "annotations" in kept:
        kept["annotations"].pop(_APPLIED, None)
    place = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    kept = {key: value for key, value in kept.items() if value}
    return Translated(_manifest({"name": name, **place, **kept}, wanted), tuple(remarks))


def _manifest(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


# -- from a registry file --------------------------------------------------------------------------


class Task(NamedTuple):
    """What a task of a registry file has that a KronJob can have."""

    name: str
    cron: str
    command: tuple[str, ...] | None
    timezone: str
    settings: Any
    spread: Spread | None
    env: Mapping[str, str]
    cwd: str | None
    user: str | None
    secrets: tuple[str, ...] = ()
    """Variables whose values are not in the file."""


def of_task(task: Task, image: str) -> Translated | Untranslated:
    """A command task of a registry file as a KronJob that runs the command in that image."""
    if task.command is None:
        return Untranslated(task.name, "it has a callback; only a command can be run in a Pod")
    if not task.cron:
        return Untranslated(task.name, "it has no cron; a KronJob is due by a schedule")
    name = re.sub(r"[^a-z0-9-]+", "-", task.name.lower()).strip("-")[:NAME_LIMIT].strip("-")
    if not name:
        return Untranslated(task.name, "nothing of its name can be in the name of a KronJob")
    remarks = [] if name == task.name else [f"the task is called {task.name!r}"]
    if task.spread is not None and task.spread.window is not None:
        remarks.append(
            "its window chooses other seconds than before: they depend on the name, which is "
            f"NAMESPACE/{name} here"
        )
    if lost := _lost(task.settings):
        remarks.append(f"left out, a KronJob has nothing like it: {', '.join(lost)}")
    spec = _spec(task, _job(task, image, remarks), remarks)
    return Translated(_manifest({"name": name}, spec), tuple(remarks))


def _job(task: Task, image: str, remarks: list[str]) -> dict[str, Any]:
    """What runs."""
    options = task.settings
    container: dict[str, Any] = {
        "name": "task",
        "image": image,
        "command": list(task.command or ()),
    }
    if task.cwd is not None:
        container["workingDir"] = task.cwd
    if task.env:
        container["env"] = [{"name": key, "value": value} for key, value in task.env.items()]
    if task.secrets:
        remarks.append(f"env {', '.join(task.secrets)}: left out; take the values from a Secret")
    if task.user is not None:
        remarks.append(f"user {task.user} is left out: set securityContext.runAsUser")
    job: dict[str, Any] = {
        "backoffLimit": 6 if options.max_attempts is None else options.max_attempts - 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if options.max_attempts is None:
        remarks.append("unlimited retries become six (backoffLimit)")
    if options.max_attempts != 1:
        remarks.append("its retries wait as those of a Job: 10 s, then twice as long, up to 6 min")
    if options.timeout is not None:
        job["activeDeadlineSeconds"] = _seconds(options.timeout, "timeout", remarks)
    return job


def _spec(task: Task, job: dict[str, Any], remarks: list[str]) -> dict[str, Any]:
    """When it runs."""
    options = task.settings
    policies = {word: name for name, word in CONCURRENCY.items()}
    spec: dict[str, Any] = {
        "schedule": task.cron,
        "timeZone": task.timezone,
        "concurrencyPolicy": policies[options.concurrency],
    }
    if options.repeated_hour != "both":
        spec["repeatedHour"] = options.repeated_hour
    if options.catch_up != "once":
        spec["catchUp"] = options.catch_up
    if options.deadline is not None:
        spec["startingDeadlineSeconds"] = _seconds(options.deadline, "deadline", remarks)
    spec |= {} if task.spread is None else spread_spec(task.spread)
    return {**spec, "suspend": True, "jobTemplate": {"spec": job}}


def _lost(task: Any) -> list[str]:
    """The options of a task that it uses, and for which there is nothing."""
    otherwise = {field.name: field.default for field in msgspec.structs.fields(task)}
    return [name for name in _NOTHING_LIKE_IT if getattr(task, name) != otherwise[name]]


def _seconds(given: timedelta, name: str, remarks: list[str]) -> int:
    seconds = given.total_seconds()
    if not seconds.is_integer():
        remarks.append(f"{name}: {seconds:g} s are rounded up to whole seconds")
    return math.ceil(seconds)


def spread_spec(spread: Spread) -> dict[str, Any]:
    """Window, distribution, seed and constraints as a KronJob has them."""
    found: dict[str, Any] = {}
    if spread.window is not None:
        length = duration_text(spread.window.duration_ms * _MS)
        found["window"] = {"mode": spread.window.mode, "duration": length}
        if spread.distribution != Distribution():
            found["distribution"] = _distribution(spread.distribution)
        seed = {"strategy": spread.seed.strategy, "salt": spread.seed.salt}
        defaults = {"strategy": "stable", "salt": ""}
        if seed != defaults:
            found["seed"] = {key: value for key, value in seed.items() if value != defaults[key]}
    for name, clauses in (("only", spread.only), ("avoid", spread.avoid)):
        if clauses is not None:
            found[name] = _clauses(clauses)
    return found


def _distribution(given: Distribution) -> dict[str, Any]:
    found: dict[str, Any] = {"name": given.name}
    if given.name in ("skewEarly", "skewLate"):
        found["shape"] = _number(given.shape)
    if given.name == "normal":
        found |= {} if given.mu is None else {"mu": given.mu}
        found |= {} if given.sigma_ms is None else {"sigma": duration_text(given.sigma_ms * _MS)}
    if given.name == "exponential":
        found |= {"lambda": _number(given.rate), "dir": given.direction}
    return found


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


def _clauses(given: Constraints) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: list(values)
        for name in ("hours", "dow", "dom", "months")
        if (values := getattr(given, name))
    }
    if given.between:
        found["between"] = [
            f"{first // 60:02}:{first % 60:02}-{last // 60:02}:{last % 60:02}"
            for first, last in given.between
        ]
    if given.dates:
        found["dates"] = [
            first.isoformat() if first == last else f"{first.isoformat()}..{last.isoformat()}"
            for first, last in given.dates
        ]
    return found
