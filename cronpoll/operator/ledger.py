"""What is remembered of a KronJob: the ledger in its status, and what people read beside it.

The ledger is a task's state in the form of the journal (`core.model.TaskState`), the runs of it
that are Jobs, and the outcomes of the last periods. It decides; everything else in the status
(`next`, `last`, `active`, `handled`, conditions) is made from it for people and is never read back.
It is written with the resourceVersion that it was read with, so two operators cannot both write
what only one may.

A run is *wanted* from the moment its period is settled in the ledger until its Job exists. `uid` is
the Job's, once it is known: only then does that Job start, and no other ever will.

When many fall due at once, a run is written down some seconds before it is due: the *plan*. Its Job
is created, too, and at its time it is only started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.model import Instant, TaskState
from cronpoll.core.zones import EPOCH

FORMAT: Final = 2
"""An operator refuses a ledger of a later one, and takes this object no further."""
OUTCOMES_KEPT: Final = 10
TEXT_LIMIT: Final = 500
HANDLED_LIMIT: Final = 100_000
"""Periods that a ledger may name as handled: every minute of two months. More was not written by an
operator."""

Outcome = Literal["executed", "skipped", "missed", "unschedulable"]
Result = Literal["running", "succeeded", "failed", "replaced", "deleted"]


class UnreadableLedgerError(Exception):
    """The status holds a ledger that this version cannot read."""


class Run(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A run that is a Job, or is to become one."""

    job: str
    period: Instant
    due_at: Instant
    generation: int = 0
    """Of the spec that its Job is made of."""
    uid: str = ""
    replaced: bool = False
    """Its Job is being deleted, to make room for a later period."""


class Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a period; of many at once, `period` is the last, `count` how many."""

    period: Instant
    outcome: Outcome
    at: Instant
    chosen_time: Instant | None = None
    reason: str = ""
    job: str = ""
    result: Result | None = None
    count: int = 1


class Ledger(msgspec.Struct, frozen=True):
    task: TaskState
    runs: tuple[Run, ...] = ()
    entries: tuple[Entry, ...] = ()
    """Newest first."""
    plan: Run | None = None


# -- on paper --------------------------------------------------------------------------------------

_MINUTE: Final = timedelta(minutes=1)


def _packed(periods: Iterable[datetime]) -> list[list[int]]:
    """Instants as runs of equal distance: first, step in seconds, how many. A week of minutes is
    one."""
    found: list[list[int]] = []
    for second in sorted(int((period - EPOCH).total_seconds()) for period in periods):
        if found:
            first, step, count = found[-1]
            if count == 1 or second == first + step * count:
                found[-1] = [first, second - first if count == 1 else step, count + 1]
                continue
        found.append([second, 0, 1])
    return found


def _unpacked(packed: Any) -> Iterator[datetime]:
    left = HANDLED_LIMIT
    for first, step, count in packed:
        left -= count
        if count < 0 or left < 0:
            raise ValueError("too many handled periods, or less than none")
        for number in range(count):
            yield datetime.fromtimestamp(first + step * number, UTC)


def encoded(ledger: Ledger) -> dict[str, Any]:
    task = msgspec.to_builtins(ledger.task)
    packed = _packed(ledger.task.handled)
    task.pop("handled", None)
    written: dict[str, Any] = {"format": FORMAT, "task": task}
    if packed:
        written["handled"] = packed
    if ledger.runs:
        written["runs"] = msgspec.to_builtins(ledger.runs)
    if ledger.plan is not None:
        written["plan"] = msgspec.to_builtins(ledger.plan)
    if ledger.entries:
        written["entries"] = msgspec.to_builtins(ledger.entries)
    # As it comes back from a server, so that it can be compared with what is there.
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(written))
    return plain


def decoded(written: Any, identity: str | None = None) -> Ledger:
    """The ledger of a status. `UnreadableLedgerError` if it is none of this version, or of another
    KronJob than that one: a status can be copied."""
    try:
        if written["format"] not in (1, FORMAT):  # the first has no plan
            raise UnreadableLedgerError(
                f"the ledger in the status has format {written['format']}, and this operator reads "
                f"{FORMAT}; use the version that wrote it, or a later one"
            )
        task = msgspec.convert(written["task"], TaskState)
        task.handled = tuple(_unpacked(written.get("handled", ())))
        runs = msgspec.convert(written.get("runs", ()), tuple[Run, ...])
        entries = msgspec.convert(written.get("entries", ()), tuple[Entry, ...])
        plan = msgspec.convert(written.get("plan"), Run | None)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableLedgerError(
            f"the ledger in the status cannot be read ({error}); restore it, or delete the "
            "KronJob and create it again, after which nothing of the past is owed"
        ) from error
    if identity not in (None, task.task_name):
        raise UnreadableLedgerError(
            f"the ledger in the status is that of {task.task_name}; delete this KronJob and create "
            "it without a status"
        )
    return Ledger(task, runs, entries, plan)


# -- outcomes --------------------------------------------------------------------------------------


def entries_of(event: e.Event, job_of: dict[str, str]) -> Iterator[Entry]:
    """The outcomes that an event gives to periods. `job_of`: the Job of a run."""
    match event:
        case e.TaskRunStarted():
            period = event.period or event.due_at
            late = (event.started_at - event.due_at).total_seconds()
            reason = reasons.started(
                event.started_at.replace(microsecond=0),
                late,
                [reasons.LATE] if late >= _MINUTE.total_seconds() else [],
            )
            job = job_of.get(event.run_id, event.run_id)
            yield Entry(
                period, "executed", event.at, event.due_at, reason, job=job, result="running"
            )
        case e.TaskMissed() | e.TaskSkipped():
            outcome, which = reasons.passed(event)
            yield Entry(
                which.period or which.last,
                outcome,
                event.at,
                which.last,
                _bounded(event.reason),
                count=which.number,
            )
        case e.TaskUnschedulable():
            yield Entry(
                event.last_period,
                "unschedulable",
                event.at,
                reason=_bounded(event.reason),
                count=event.count,
            )
        case e.TaskResumed() if event.last_passed is not None:
            yield Entry(
                event.last_passed,
                "skipped",
                event.at,
                event.last_passed,
                reasons.SUSPENDED,
                count=event.count,
            )


def with_result(
    entries: tuple[Entry, ...], job: str, result: Result, reason: str = ""
) -> tuple[Entry, ...]:
    """`reason`: why nothing of it ran."""
    return tuple(
        msgspec.structs.replace(entry, result=result, reason=_bounded(reason) or entry.reason)
        if entry.job == job and entry.result == "running"
        else entry
        for entry in entries
    )


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"
