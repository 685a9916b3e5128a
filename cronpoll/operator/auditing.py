"""The judge of status ledgers: every period has one outcome, and no Job is without a period.

It reads what an API server has, decides nothing and changes nothing. What was due it asks the
judge's own calendar (`audit.ticks`), which shares no code with the one that the operator decides
by; what became of it, the ledger; what was done, the Jobs that are still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from cronpoll.audit.facts import opening
from cronpoll.audit.ticks import AnyTicks, NotCronError, ticks_of
from cronpoll.core.text import utc_text
from cronpoll.operator.api import JOBS, KRONJOBS, OF_KRONJOB, OF_PERIOD, Api, Object, listed
from cronpoll.operator.decision import job_name, zones
from cronpoll.operator.jobs import job_of
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import (
    OUTCOMES_KEPT,
    Entry,
    Ledger,
    Run,
    UnreadableLedgerError,
    decoded,
)

_LOOKED_AT: Final = 20_000
"""Periods of one KronJob that are counted; more than its ledger names are not."""
_WANTED_FOR: Final = timedelta(minutes=5)


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    kronjob: str
    text: str


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    kronjobs: int
    periods: int
    jobs: int
    findings: tuple[Finding, ...]


def judged(kronjob: Object, jobs: Sequence[Object], now: datetime) -> tuple[int, list[str]]:
    """How many periods of a KronJob were looked at, and what is wrong."""
    found = read(kronjob)
    if isinstance(found, list):
        return 0, []  # its condition says so; nothing of it starts
    status: Mapping[str, Any] = kronjob.get("status") or {}
    if "ledger" not in status:
        return 0, ["it has no ledger: no operator has looked at it"]
    try:
        ledger = decoded(status["ledger"], found.identity)
    except UnreadableLedgerError as error:
        return 0, [str(error)]
    try:
        ticks = ticks_of(found.identity, ledger.task.config, zones().named)
    except NotCronError as error:
        return 0, [f"the ledger has a schedule that is none: {error}"]
    since = _since(ledger)
    counted, wrong = _accounted(ledger, ticks, since)
    if since is not None:
        wrong += _as_chosen(ledger.entries, ticks, since)
    wrong += _twice(ledger.entries)
    wrong += _wanted(ledger, now)
    wrong += _jobs(found.name, found.uid, ledger, jobs)
    return counted, wrong


def _plan(ledger: Ledger) -> tuple[Run, ...]:
    return () if ledger.plan is None else (ledger.plan,)


def _due(entry: Entry) -> datetime:
    return entry.chosen_time or entry.period


def _since(ledger: Ledger) -> datetime | None:
    """From when on the ledger can tell what became of a period; None: a clock was wrong."""
    task = ledger.task
    if task.served:
        return None
    since = opening(task.config, task.registered_at)
    if len(ledger.entries) == OUTCOMES_KEPT:
        return max(since, _due(ledger.entries[-1]))
    return since


def _accounted(ledger: Ledger, ticks: AnyTicks, since: datetime | None) -> tuple[int, list[str]]:
    """Everything due since the ledger can tell, against what has an outcome."""
    if since is None:
        return 0, []
    task, number = ledger.task, 0
    for due, period in ticks.forwards(since):
        if due > task.settled_until or number > _LOOKED_AT:
            break
        number += period not in task.handled
    outcomes = sum(
        entry.count
        for entry in ledger.entries
        if entry.outcome != "unschedulable" and _due(entry) > since
    )
    if number > _LOOKED_AT or number == outcomes:
        return number, []
    return number, [
        f"{number} periods were due from {utc_text(since)} to {utc_text(task.settled_until)}, "
        f"and {outcomes} have an outcome"
    ]


def _as_chosen(entries: Sequence[Entry], ticks: AnyTicks, since: datetime) -> Iterator[str]:
    """Every Job was for a period of the schedule, and due at its chosen time."""
    for entry in entries:
        if entry.outcome != "executed" or _due(entry) <= since:
            continue
        due = ticks.due_at(entry.period)
        if due != _due(entry):
            then = "it is none" if due is None else f"its chosen time is {utc_text(due)}"
            yield (
                f"the period {utc_text(entry.period)} was executed as due at "
                f"{utc_text(_due(entry))}, and by its schedule {then}"
            )


def _twice(entries: Sequence[Entry]) -> Iterator[str]:
    executed = Counter(entry.period for entry in entries if entry.outcome == "executed")
    for period, number in executed.items():
        if number > 1:
            yield f"the period {utc_text(period)} was executed {number} times"


def _wanted(ledger: Ledger, now: datetime) -> Iterator[str]:
    for run in (*ledger.runs, *_plan(ledger)):
        if not run.uid and now - run.due_at > _WANTED_FOR:
            yield (
                f"the Job {run.job}, due {utc_text(run.due_at)}, is in the ledger and was not "
                "created; no operator works, or it may not create Jobs"
            )


def _jobs(name: str, uid: str, ledger: Ledger, jobs: Sequence[Object]) -> Iterator[str]:
    known = {entry.job for entry in ledger.entries}
    known |= {run.job for run in (*ledger.runs, *_plan(ledger))}
    oldest = ledger.entries[-1].period if len(ledger.entries) == OUTCOMES_KEPT else None
    periods: Counter[str] = Counter()
    for found in jobs:
        job = job_of(found)
        if job.owner != uid:
            continue
        text = (found["metadata"].get("annotations") or {}).get(OF_PERIOD, "")
        try:
            period = datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            yield f"the Job {job.name} is without a period"
            continue
        periods[text] += 1
        if job.name != job_name(name, period):
            yield f"the Job {job.name} is not named after its period {text}"
        elif job.name not in known and (oldest is None or period > oldest):
            yield f"the Job {job.name} is for the period {text}, of which the ledger knows nothing"
    for text, number in periods.items():
        if number > 1:
            yield f"the period {text} has {number} Jobs"


async def audited(api: Api, namespace: str | None, now: datetime) -> Verdict:
    """All KronJobs of a namespace, or of the cluster."""
    kronjobs, _ = await listed(api, KRONJOBS, namespace)
    jobs, _ = await listed(api, JOBS, namespace, OF_KRONJOB)
    of: dict[tuple[str, str], list[Object]] = {}
    for job in jobs:
        metadata = job["metadata"]
        of.setdefault((metadata["namespace"], metadata["labels"][OF_KRONJOB]), []).append(job)
    findings, periods = [], 0
    for kronjob in kronjobs:
        metadata = kronjob["metadata"]
        key = metadata["namespace"], metadata["name"]
        counted, wrong = judged(kronjob, of.pop(key, []), now)
        periods += counted
        findings += [Finding("/".join(key), text) for text in wrong]
    for (place, name), left in of.items():
        findings += [
            Finding(f"{place}/{name}", f"the Job {job['metadata']['name']} has no KronJob")
            for job in left
            if not job["metadata"].get("deletionTimestamp")
        ]
    return Verdict(len(kronjobs), periods, len(jobs), tuple(findings))
