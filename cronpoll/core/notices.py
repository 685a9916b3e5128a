"""Whom to tell what: decided from the book and from what was asked for. Pure; nobody is told here.

Everything that people are told of is a state in the book, not a passing event: a task fails, a due
time was missed, a quarantine is in force. So the question "what is to be told now?" can be asked at
any moment, after a restart too, and has the same answer with the same ids. What was told is in the
book as well (`NoticeTold`). A notice is recorded as told when the target has taken it: a process
that dies before tells it later, and one that dies in between tells it twice, with the same id.

What ends before anybody was told of it is not told; a recovery is told to those who were told of
the trouble.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.calendar import DueTimes
from cronpoll.core.model import Book, NoticeKind, TaskState, Told
from cronpoll.core.text import utc_text
from cronpoll.core.values import duration_text

STALE: Final = timedelta(days=1)
"""What was missed longer ago is not told any more: to somebody who was asked for later, say."""
SHOWN: Final = 100
"""Notices that a digest lists; the rest is counted."""
OUTPUT_LINES: Final = 20
OUTPUT_CHARACTERS: Final = 4_000
"""Of what a run printed, at most so much is told."""
TEXT_CHARACTERS: Final = 20_000
"""Of the text of a message."""
_SECOND: Final = timedelta(seconds=1)
HEARD: Final = (
    e.TaskRunFailed,
    e.TaskRunCompleted,
    e.TaskMissed,
    e.TaskQuarantined,
    e.TaskOrphaned,
    e.TaskOverridden,
    e.TaskAdded,
    e.TaskResumed,
)
"""What may change what is to be told of a task."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What `notify` of a task or of [defaults] asks for. None: it says nothing about it."""

    to: tuple[str, ...] | None = None
    after: int | None = None
    remind: timedelta | None = None
    recovered: bool | None = None
    missed: bool | None = None
    overdue: timedelta | None = None
    output: bool | None = None

    def over(self, default: Wish) -> Wish:
        """This one, and where it says nothing the other."""
        given = {
            key: value for key, value in msgspec.structs.asdict(self).items() if value is not None
        }
        return msgspec.structs.replace(default, **given)


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """Something to tell a target. `id`: the same whenever it is decided again. `since`: when it
    began. `number`: how often the target has been told before."""

    id: str
    kind: NoticeKind
    task: str | None
    target: str
    subject: str
    since: datetime
    title: str
    text: str
    number: int = 0
    output: tuple[str, ...] = ()


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """What is sent to a target in one piece: a notice, or a digest of many."""

    id: str
    title: str
    text: str
    notices: tuple[Notice, ...]


class Sending(NamedTuple):
    """A message, and all that is told with it; of a digest, the message lists the first ones."""

    message: Message
    notices: tuple[Notice, ...]


class Standing(NamedTuple):
    """Trouble of the daemon that lasts. `topic`: one word, of which there is one at a time."""

    topic: str
    since: datetime
    text: str


# -- what is to be told ----------------------------------------------------------------------------


def of_task(
    book: Book, task: TaskState, wish: Wish, now: datetime, late_since: datetime | None = None
) -> list[Notice]:
    """What is to be told of a task now. `late_since`: the oldest due instant that is not served
    yet, if there is one."""
    if not task.registered or task.is_suspended:
        return []
    found: list[Notice] = []
    for target in wish.to or ():
        for kind, subject, since, text in _troubles(task, wish, now, late_since):
            told = _last_told(task, target, kind, subject)
            if _is_due(told, wish.remind if kind != "missed" else None, now):
                number = 0 if told is None else told.number + 1
                found.append(_notice(book, kind, task, target, subject, since, text, number))
        found += _recovery(book, task, wish, target)
    return found


def of_runs(book: Book, task: TaskState, targets: Iterable[str], now: datetime) -> list[Notice]:
    """What checks, which expect a sign of every run, are to be told of a task now, in this order:
    how its last run ended, and that one has begun. `since` is when the run began. A run that was
    cut off has neither succeeded nor failed: of that, they are told nothing."""
    found: list[Notice] = []
    ended, begun = task.ended_at, task.runs[-1] if task.runs else None
    ends: dict[datetime | None, tuple[NoticeKind, str]] = {
        task.last_failure_at: ("run-failed", task.last_error or "no reason is known"),
        task.last_success_at: ("run-succeeded", "a run has succeeded"),
    }
    for target in targets if task.registered else ():
        if ended is not None and ended in ends and now - ended < STALE:
            (kind, text), subject = ends[ended], utc_text(ended)
            if all((told.target, told.subject) != (target, subject) for told in task.pinged):
                since = task.run_began or ended
                found.append(_notice(book, kind, task, target, subject, since, text, 0))
        if begun is not None and not begun.detached:
            subject, since = begun.run_id, begun.started_at
            text = f"a run has begun, at {utc_text(since)}"
            found.append(_notice(book, "run-started", task, target, subject, since, text, 0))
    return found


def _troubles(
    task: TaskState, wish: Wish, now: datetime, late_since: datetime | None
) -> Iterator[tuple[NoticeKind, str, datetime, str]]:
    """The troubles of a task: kind, subject, when it began, and words for it."""
    trouble = task.trouble
    since = None if trouble is None or trouble.over_at is not None else trouble.since
    if trouble is not None and since is not None and trouble.failures >= (wish.after or 1):
        times = "1 run" if trouble.failures == 1 else f"{trouble.failures} runs in a row"
        why = task.last_error or "no reason is known"
        yield "failed", trouble.first_run, since, f"{times} failed, since {utc_text(since)}: {why}"
    missed = None if trouble is None or wish.missed is False else trouble.missed
    if missed is not None and now - missed.at < STALE:
        span = utc_text(missed.last)
        if missed.count > 1:
            many = reasons.how_many(missed.count)
            span = f"{many} due times from {utc_text(missed.first)} to {span}"
        yield "missed", utc_text(missed.last), missed.at, f"missed, and not made up for: {span}"
    if task.quarantined_until is not None:
        text = (
            f"{task.deaths} times the daemon died while it ran; it is not started before "
            f"{utc_text(task.quarantined_until)}"
        )
        since = task.last_attempt_at or task.registered_at
        yield "quarantined", f"{task.deaths} {utc_text(since)}", since, text
    if wish.overdue is not None and late_since is not None and now >= late_since + wish.overdue:
        text = f"what was due at {utc_text(late_since)} is not done yet"
        yield "overdue", utc_text(late_since), late_since, text


def late_since(task: TaskState, due: DueTimes, now: datetime) -> datetime | None:
    """The oldest due instant that is not done: it runs, is tried again, or has not begun."""
    begun = any(not run.manual and not run.detached for run in task.runs)
    if begun or task.retry_at is not None or task.interrupted:
        return task.due_at
    if task.owed_at is not None:
        return task.owed_at
    if due.latest_in(task.settled_until, now, task.handled) is None:
        return None
    return due.next_after(task.settled_until)


def _last_told(task: TaskState, target: str, kind: NoticeKind, subject: str) -> Told | None:
    told = () if task.trouble is None else task.trouble.told
    for each in told:
        if (each.target, each.kind, each.subject) == (target, kind, subject):
            return each
    return None


def _is_due(told: Told | None, remind: timedelta | None, now: datetime) -> bool:
    return told is None or (remind is not None and now >= told.at + remind)


def _recovery(book: Book, task: TaskState, wish: Wish, target: str) -> Iterator[Notice]:
    trouble = task.trouble
    if trouble is None or trouble.over_at is None or wish.recovered is False:
        return
    told = [each for each in trouble.told if each.target == target and each.kind != "missed"]
    if told:
        lasted = duration_text(_whole(trouble.over_at - (trouble.since or told[0].at)))
        failed = f" after {trouble.failures} failed runs" if trouble.failures > 1 else ""
        text = f"a run succeeded at {utc_text(trouble.over_at)}{failed}; it had lasted {lasted}"
        subject = told[0].subject
        yield _notice(book, "recovered", task, target, subject, trouble.over_at, text, 0)


def _whole(length: timedelta) -> timedelta:
    return max(length // _SECOND, 0) * _SECOND


def of_daemon(
    book: Book, standing: Iterable[Standing], targets: Sequence[str], now: datetime
) -> list[Notice]:
    """What is to be told of the daemon itself: trouble that lasts, and the end of what was told."""
    found: list[Notice] = []
    present = {each.topic: each for each in standing}
    for target in targets:
        told = {each.subject.partition(":")[0]: each for each in book.told if each.target == target}
        for topic, each in present.items():
            subject = f"{topic}:{utc_text(each.since)}"
            if topic not in told or told[topic].subject != subject:
                found.append(
                    _notice(book, "daemon", None, target, subject, each.since, each.text, 0)
                )
        for topic, before in told.items():
            if topic not in present:
                text = f"{_OVER.get(topic, topic)}; that was told at {utc_text(before.at)}"
                found.append(_notice(book, "recovered", None, target, before.subject, now, text, 0))
    return found


_OVER: Final = {
    "degraded": "state can be written again",
    "rejected": "the registry file is accepted again",
    "clock": "the clock is believed again",
}
_TITLES: Final[Mapping[NoticeKind, str]] = {
    "failed": "{task} failed",
    "recovered": "{task} has recovered",
    "missed": "{task} was missed",
    "overdue": "{task} is overdue",
    "quarantined": "{task} is quarantined",
    "daemon": "{task} has trouble",
    "run-started": "{task} has begun",
    "run-succeeded": "{task} has succeeded",
    "run-failed": "{task} failed",
}


def _notice(
    book: Book,
    kind: NoticeKind,
    task: TaskState | None,
    target: str,
    subject: str,
    since: datetime,
    text: str,
    number: int,
) -> Notice:
    name = None if task is None else task.task_name
    parts = (book.scheduler_identifier, name or "", kind, subject, str(number))
    title = _TITLES[kind].format(task="cronpolld" if name is None else name)
    if number:
        title += f" (reminder {number})"
    return Notice(_digest(parts), kind, name, target, subject, since, title, text, number)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


# -- how it is sent --------------------------------------------------------------------------------


def messages(pending: Sequence[Notice], room: int) -> list[Sending]:
    """The notices as messages, of which `room` may be sent now: each as one of its own, or, if
    they are too many, all of them as one."""
    if not pending or room < 1:
        return []
    if len(pending) <= room:
        return [_alone(notice) for notice in pending]
    return [_together(pending)]


def _alone(notice: Notice) -> Sending:
    lines = [notice.text, *(["", "It printed last:", *notice.output] if notice.output else [])]
    return Sending(Message(notice.id, notice.title, _bounded(lines), (notice,)), (notice,))


def of_check(pending: Sequence[Notice]) -> Sending:
    """What a check is told, in order: each of it is a request of its own."""
    first = pending[0]
    message = Message(_digest(each.id for each in pending), first.title, first.text, tuple(pending))
    return Sending(message, tuple(pending))


def _together(pending: Sequence[Notice]) -> Sending:
    counts: dict[str, int] = {}
    for notice in pending:
        counts[notice.kind] = counts.get(notice.kind, 0) + 1
    title = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    lines = [f"{notice.title}: {notice.text}" for notice in pending[:SHOWN]]
    if len(pending) > SHOWN:
        lines.append(f"and {len(pending) - SHOWN} more")
    shown = tuple(msgspec.structs.replace(notice, output=()) for notice in pending[:SHOWN])
    identifier = _digest(sorted(notice.id for notice in pending))
    message = Message(identifier, f"cronpoll: {title}", _bounded(lines), shown)
    return Sending(message, tuple(pending))


def _bounded(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}\n..."


def tail(lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines of what a run printed, as many as are told."""
    kept: list[str] = []
    left = OUTPUT_CHARACTERS
    for line in reversed(lines[-OUTPUT_LINES:]):
        if len(line) > left:
            break
        kept.append(line)
        left -= len(line) + 1
    return tuple(reversed(kept))
