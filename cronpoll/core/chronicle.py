"""What the record answers: the history of a task, and why a minute got a start or none. Pure: from
the record (`past`) to sentences (`reasons`).

*Why* is answered by reading the record again, with the schedules that were in force then. `past`
finds the event that settled a period; here it is put into words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core import reasons
from cronpoll.core.model import MICROSECOND, MINUTE, Book
from cronpoll.core.past import Fate, Past, Runs, Stretch
from cronpoll.core.view import Attempt, Entry, Finding, Note, Verdict
from cronpoll.core.zones import floor_minute


def usual_durations(
    record: Iterable[Book | e.Event], names: Collection[str], number: int = 20
) -> dict[str, float]:
    """The median of what the last successful runs of these tasks took, in milliseconds."""
    took: dict[str, deque[float]] = {}
    for item in record:
        if isinstance(item, e.TaskRunCompleted) and item.task_name in names:
            took.setdefault(item.task_name, deque(maxlen=number)).append(item.duration)
    return {name: sorted(each)[len(each) // 2] for name, each in took.items()}


def history(record: Iterable[Book | e.Event], name: str, *, alive: bool) -> list[Entry]:
    """The history of a task, in the order in which it was recorded. `alive`: whether a daemon is
    running now."""
    found: list[Entry] = []
    runs = Runs()
    for item in record:
        if isinstance(item, Book):
            runs.continue_from(item.tasks.get(name))
        elif getattr(item, "task_name", None) == name:
            run = runs.read(item)
            if run is not None:
                found.append(run)
            elif (text := reasons.note(item)) is not None:
                found.append(Note(item.at, type(item).__name__, text))
    if not alive:
        runs.process_died()
    return found


# -- why -------------------------------------------------------------------------------------------


def why(past: Past, minute: datetime) -> Finding:
    """What became of a whole minute: of the period that it names, or else of the one whose
    chosen second lies in it."""
    for period in chain((minute,), _due_in(past, minute)):
        finding = _found(past, period)
        if finding is not None:
            return finding
    return _not_due(past, minute)


def why_after(past: Callable[[str], Past], name: str, minute: datetime) -> Finding:
    """The same for a task that may be started after another: if it was not due, what became of that
    other one is part of the answer. `past`: the record of a task."""
    asked = past(name)
    finding = why(asked, minute)
    upstream = upstream_of(asked, finding, minute)
    if upstream is None:
        return finding
    return beside(finding, upstream, why_after(past, upstream, minute))


def upstream_of(past: Past, finding: Finding, minute: datetime) -> str | None:
    """The task after which this one was started, if it was not due and that is why."""
    stretch = _in_force(past, minute) if finding.verdict == "not due" else None
    return None if stretch is None or stretch.config is None else stretch.config.options.after


def beside(finding: Finding, upstream: str, other: Finding) -> Finding:
    """With what became of the task before it."""
    return replace(finding, text=f"{finding.text}; {upstream}: {other.text}")


def _due_in(past: Past, minute: datetime) -> Iterator[datetime]:
    """The periods that were started for an instant in this minute, or whose chosen second lies
    in it."""
    for period, attempts in past.by_period.items():
        if any(floor_minute(attempt.due_at) == minute for attempt in attempts):
            yield period
    for index, stretch in enumerate(past.stretches):
        over = index + 1 < len(past.stretches) and past.stretches[index + 1].at < minute
        if stretch.schedule is None or stretch.at >= minute + MINUTE or over:
            continue
        due_at = stretch.schedule.next_after(minute - MICROSECOND)
        while due_at is not None and due_at < minute + MINUTE:
            yield from reversed(stretch.schedule.periods_at(due_at))
            due_at = stretch.schedule.next_after(due_at)


def _found(past: Past, period: datetime) -> Finding | None:
    """What became of a period; None if it never was due."""
    mine = tuple(past.by_period.get(period, ()))
    if mine:
        return Finding(mine[0].due_at, "started", _told(past, mine), mine, period)
    fate = past.fate_of(period)
    if fate.state == "absent":
        choice = past.unschedulable(period)
        if choice is None:
            return None
        text = reasons.unschedulable(choice.reason or "")
        return Finding(choice.window_end, "unschedulable", text, (), period)
    assert fate.due_at is not None
    if fate.state == "settled":
        verdict, text, run = _settled(past, fate, fate.due_at, period)
        return Finding(fate.due_at, verdict, text, () if run is None else (run,), period)
    task = past.task
    assert task is not None, "what is pending or flagged is so in the last state"
    if fate.state == "pending" and fate.due_at > past.now:
        suspended = reasons.rests_at(task, fate.due_at)
        text = reasons.upcoming(fate.due_at, task)
        return Finding(fate.due_at, "suspended" if suspended else "not yet", text, (), period)
    return Finding(
        fate.due_at, "open", reasons.still_open(task, past.now, alive=past.alive), (), period
    )


# A start.


def _told(past: Past, attempts: tuple[Attempt, ...]) -> str:
    first, last = attempts[0], attempts[-1]
    causes: list[str] = []
    late = (first.started_at - _owed_from(past, first)).total_seconds()
    if late >= reasons.LATE_SECONDS and first.trigger not in (
        "retry",
        "interrupted",
    ):  # else the first is not recorded
        causes = _causes(past, first)
    when = reasons.started(first.started_at, late, causes)
    tries = "" if len(attempts) == 1 else f"; {len(attempts)} attempts"
    return f"{when}{tries}; {reasons.OUTCOMES.get(last.outcome) or f'{last.outcome}: {last.error}'}"


def _owed_from(past: Past, run: Attempt) -> datetime:
    """A minute that was open when the task was registered is owed from then on."""
    task = past.at_start.get(run.run_id)
    return (
        run.due_at if task is None or run.trigger != "boot" else max(run.due_at, task.registered_at)
    )


def _causes(past: Past, run: Attempt) -> list[str]:
    """What kept a run from being started when it was owed, as far as the record tells."""
    found: list[str | None] = []
    owed_from, task = _owed_from(past, run), past.at_start.get(run.run_id)
    if task is None or task.config.options.concurrency != "allow":
        found += [
            reasons.ran_until(other.ended_at)
            for other in past.attempts
            if other is not run
            and other.ended_at is not None
            and owed_from < other.ended_at <= run.started_at
        ]
    found += [reasons.hindrance(event, owed_from, run.started_at) for event in past.hindrances]
    if run.waited_since is not None:
        for_lock = run.waited_for is not None
        found.append(reasons.lock_held(run.waited_for) if for_lock else reasons.NO_SLOT)
    return list(dict.fromkeys(cause for cause in found if cause is not None)) or [reasons.HELD_UP]


# No start.


def _settled(
    past: Past, fate: Fate, due_at: datetime, period: datetime
) -> tuple[Verdict, str, Attempt | None]:
    """The finding for an instant that was settled by an event without a start of its own."""
    event = fate.event
    match event:
        case None:
            return "no record", reasons.LOST, None
        case e.TaskMissed() | e.TaskSkipped() if event.was_owed or not fate.flagged:
            kind = reasons.passed(event)[0]
            run = next((run for run in past.attempts if run.run_id == event.run_id), None)
            stands = "" if run is None else f"; {reasons.stands_for_it(run.started_at)}"
            return kind, f"{kind}: {event.reason}{stands}", run
        case e.TaskRunStarted():
            run = next(run for run in past.attempts if run.run_id == event.run_id)
            return (
                "missed",
                f"missed: {reasons.stands_for_it(event.started_at, event.due_at)}",
                run,
            )
        case e.TaskResumed():
            return "suspended", reasons.suspended_until(event.at), None
        case e.TaskOverridden():
            return *_by_edit(event, fate, due_at, period), None
        case e.TaskSkipped(owed_at=datetime() as other):
            return "missed", f"missed: {reasons.owed_instead(other)}", None
        case e.TaskAttemptDropped():
            return "missed", f"missed: {event.reason}", None
        case e.TaskBaseReset():
            return "dropped", reasons.clock_was_wrong(event), None
        case e.TaskServedBefore():
            return "dropped", reasons.served_before(event), None
        case e.TaskDueAfter(passed=reasons.SUSPENDED):
            return "suspended", reasons.PASSED_SUSPENDED, None
        case e.TaskDueAfter():
            return "skipped", f"skipped: {event.passed or reasons.OVERTAKEN}", None
        case e.TaskOrphaned():
            return "dropped", reasons.LEFT_OUT, None
        case e.TaskRecordSetAside() | e.TaskAdded():
            return "dropped", reasons.SET_ASIDE, None
    raise AssertionError(f"{event!r} settles nothing")


# Never due.


def _in_force(past: Past, moment: datetime) -> Stretch | None:
    """The part of the record to which a moment belongs."""
    found = None
    for stretch in past.stretches:
        if stretch.at > moment:
            break
        found = stretch
    return found


def _not_due(past: Past, minute: datetime) -> Finding:
    stretch = _in_force(past, minute)
    earlier = past.began is not None and minute < past.began
    if stretch is not None and stretch.began is None and earlier:
        return Finding(minute, "no record", reasons.LOST)
    if stretch is None or stretch.config is None:
        return _not_registered(past, minute, stretch, earlier=earlier)
    if stretch.schedule is None:
        problem = past.calendar.problem(stretch.config) or ""
        return Finding(minute, "not due", reasons.cannot_be_computed(stretch.config, problem))
    due_at = stretch.due_at(minute)
    if due_at is None:
        return Finding(minute, "not due", reasons.does_not_match(stretch.config))
    if (
        due_at > stretch.opening
    ):  # handled already, by a schedule that came into force too late for it
        stretch = next(other for other in past.stretches if other.has(minute))
        due_at = stretch.due_at(minute) or due_at
    if due_at > stretch.at:
        return Finding(due_at, "dropped", reasons.settled_before(stretch.opening), (), minute)
    return Finding(due_at, "not due", reasons.in_force_later(due_at, stretch.at), (), minute)


def _not_registered(
    past: Past, minute: datetime, stretch: Stretch | None, *, earlier: bool
) -> Finding:
    later = next(
        (other for other in past.stretches if other.at > minute and other.config is not None),
        None,
    )
    if later is not None:
        return Finding(
            minute, "not due", reasons.registered_later(later.at, again=stretch is not None)
        )
    if earlier:
        return Finding(minute, "no record", reasons.RECORD_BEGINS_LATER)
    return Finding(minute, "not due", reasons.not_registered(past.name, ever=minute <= past.now))


def _by_edit(
    event: e.TaskOverridden, fate: Fate, due_at: datetime, period: datetime
) -> tuple[Verdict, str]:
    """Of a due instant that an edit has settled, or moved into the past."""
    assert fate.stretch is not None
    moved_to = fate.stretch.due_at(period)
    if due_at > event.at and not fate.flagged and moved_to is not None:
        return "dropped", reasons.moved(event.at, due_at, moved_to)
    if event is fate.stretch.began and fate.stretch.suspended:
        return "suspended", reasons.suspended_and_edited(event.at)
    if event.owed_at is not None and not event.reset:
        return "missed", f"missed: {reasons.owed_instead(event.owed_at)}"
    return "dropped", reasons.edited(event)
