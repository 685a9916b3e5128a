"""The judge of status ledgers: every period has one outcome, and no Job is without a period.

It reads what an API server has, decides nothing and changes nothing. What is due it asks the
calendar; what became of it, the ledger; what was done, the Jobs that are still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from cronpoll.core.calendar import DueTimes
from cronpoll.core.machine import opening
from cronpoll.core.text import utc_text
from cronpoll.operator.api import JOBS, KRONJOBS, OF_KRONJOB, OF_PERIOD, Api, Object, listed
from cronpoll.operator.decision import calendar, job_name
from cronpoll.operator.jobs import job_of
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import OUTCOMES_KEPT, Entry, Ledger, UnreadableLedgerError, decoded

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
        ledger = decoded(status["ledger"])
    except UnreadableLedgerError as error:
        return 0, [str(error)]
    due = calendar().due_times(found.identity, ledger.task.config)
    counted, wrong = _accounted(ledger, due)
    wrong += _twice(ledger.entries)
    wrong += _wanted(ledger, now)
    wrong += _jobs(found.name, found.uid, ledger, jobs)
    return counted, wrong


def _accounted(ledger: Ledger, due: DueTimes) -> tuple[int, list[str]]:
    """Everything due since the ledger can tell, against what has an outcome."""
    task = ledger.task
    since = opening(task.config, task.registered_at)
    if len(ledger.entries) == OUTCOMES_KEPT:
        oldest = ledger.entries[-1]
        since = max(since, oldest.chosen_time or oldest.period)
    outcomes = sum(
        entry.count
        for entry in ledger.entries
        if entry.outcome != "unschedulable" and (entry.chosen_time or entry.period) > since
    )
    number, moment = 0, since
    while number <= _LOOKED_AT:
        coming = due.next_after(moment)
        if coming is None or coming > task.settled_until:
            break
        number += sum(period not in task.handled for period in due.periods_at(coming))
        moment = coming
    if task.served or number > _LOOKED_AT:  # a clock was wrong, or there are too many
        return number, []
    if number == outcomes:
        return number, []
    return number, [
        f"{number} periods were due from {utc_text(since)} to {utc_text(task.settled_until)}, "
        f"and {outcomes} have an outcome"
    ]


def _twice(entries: Sequence[Entry]) -> Iterator[str]:
    executed = Counter(entry.period for entry in entries if entry.outcome == "executed")
    for period, number in executed.items():
        if number > 1:
            yield f"the period {utc_text(period)} was executed {number} times"


def _wanted(ledger: Ledger, now: datetime) -> Iterator[str]:
    for run in ledger.runs:
        if not run.uid and now - run.due_at > _WANTED_FOR:
            yield (
                f"the Job {run.job}, due {utc_text(run.due_at)}, is in the ledger and was not "
                "created; no operator works, or it may not create Jobs"
            )


def _jobs(name: str, uid: str, ledger: Ledger, jobs: Sequence[Object]) -> Iterator[str]:
    known = {entry.job for entry in ledger.entries} | {run.job for run in ledger.runs}
    oldest = ledger.entries[-1].period if len(ledger.entries) == OUTCOMES_KEPT else None
    periods: Counter[str] = Counter()
    for found in jobs:
        job = job_of(found)
        if job.owner != uid:
            continue
        text = (found["metadata"].get("annotations") or {}).get(OF_PERIOD, "")
        try:
            period = datetime.fromisoformat(text)
        except ValueError:
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
