"""The scheduler itself: its instances, its disk, its clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronpoll.audit.facts import (
    BOUND,
    LONG_AGO,
    NEVER,
    SPAN,
    UNRECORDED,
    UNTOLD,
    Facts,
)
from cronpoll.audit.fold.registrations import put_aside
from cronpoll.core import events as e
from cronpoll.core.model import (
    MILLISECOND,
    QUARANTINE_LONGEST,
)


def instance_started(facts: Facts, event: e.InstanceStarted) -> None:
    if facts.state == "running" and not isinstance(
        facts.initializing, e.SchedulerInitializationStarted
    ):
        _died(facts)
    if event.at < max(facts.active, facts.last_started, facts.last_end) - UNRECORDED:
        _other_reading(facts, event.at)  # the clock was set while nothing ran
    begun = facts.unset(event.at)
    for task in facts.tasks.values():
        # Delays are never longer than they can be.
        if task.retry is not None:
            task.retry = min(task.retry_told, begun + task.retry_delay)
            task.retry_cut = False
        if task.quarantine is not None and task.quarantine != UNTOLD:
            task.quarantine = min(task.quarantine_told, begun + QUARANTINE_LONGEST)
            task.quarantine_cut = False
        if task.asleep_until is not None:
            task.asleep_until = min(task.asleep_told, begun + task.asleep_for)
            task.asleep_cut = False
    facts.scheduler = event.scheduler_identifier
    known = facts.instance or facts.durable
    facts.new_boot = event.boot_id != facts.boot_id if known and event.boot_id else None
    facts.boot_id = event.boot_id
    if facts.instance:
        facts.instances.append(facts.instance)
    # Whoever names the boot says of every event what it changes.
    facts.carries, facts.numbers_lost = bool(event.boot_id), False
    facts.stepped_at = facts.believed = None
    facts.full_since, facts.full_steps = NEVER, -1
    facts.instance, facts.state = event.instance_id, "running"
    facts.begun, facts.bound, facts.bound_unknown = True, event.max_concurrent, False
    facts.maybe_held.clear()
    facts.free = facts.active = event.at
    facts.degraded = False
    facts.stop_requested = facts.cut_off = None
    facts.last_number = 0
    facts.held.clear()


def _died(facts: Facts) -> None:
    """A process has died. What it recorded last may be missing from a log, and is of a moment
    after its last line."""
    if not facts.durable and facts.before is not None:
        facts.torn_until = facts.before + BOUND + UNRECORDED
        torn = facts.unset(facts.torn_until)
        for task in [*facts.tasks.values()]:
            follows = task.config.options.after
            if task.owed_at is not None and follows is not None and follows not in facts.tasks:
                why = f"the log does not have {follows}, after which it is started: not judged"
                put_aside(facts, task.name, why)
            task.ordered = {due for due in task.ordered if due > facts.torn_until}
            if task.asleep_until is not None and task.asleep_until <= torn:
                task.suspended, ended_at = False, facts.as_set(task.asleep_until)
                task.asleep_until = None
                if not task.asleep:
                    task.wakes(ended_at)


def stopped(facts: Facts, _: e.SchedulerStopped) -> None:
    facts.state = "stopped"
    facts.stop_requested = None


def stop_is_requested(facts: Facts, event: e.SchedulerStopRequested) -> None:
    facts.stop_requested = event.at


def initialize_begins(facts: Facts, event: e.Event) -> None:
    if isinstance(event, e.SchedulerInitializationStarted):
        if facts.state == "running":
            _died(facts)
        if facts.unfinished and not facts.durable:
            _registered_unseen(facts)
    facts.initializing, facts.active_before, facts.unfinished = event, facts.active, True


def _registered_unseen(facts: Facts) -> None:
    """A process died while it took over what was registered: what it changed can be durable, and
    its line missing from the log."""
    for name in [*facts.tasks]:
        why = "the log lacks what a process that died had registered: not judged from there on"
        put_aside(facts, name, why)
    facts.began_blind = True


def initialize_ends(facts: Facts, event: e.Event) -> None:
    facts.initializing = None
    facts.initialized = facts.begun
    # One that failed on the disk can be there all the same when the process dies.
    facts.unfinished = isinstance(event, e.SchedulerInitializationFailed)


def _other_reading(facts: Facts, at: datetime) -> None:
    """The clock was set: what was before and what comes now cannot be compared."""
    facts.steps += 1
    facts.last_started = facts.last_end = LONG_AGO
    for task in facts.tasks.values():
        task.free = min(task.free, at)  # what was in its way before is not in it for years


def clock_stepped(facts: Facts, event: e.ClockStepped) -> None:
    facts.set_by = min(max(facts.set_by + timedelta(milliseconds=event.step_ms), -SPAN), SPAN)
    _other_reading(facts, event.at)
    facts.free = facts.active = facts.stepped_at = event.at
    facts.believed = None
    facts.high = facts.earlier = event.at


def goes_on(facts: Facts, event: e.SuspensionDetected | e.StoreRecovered) -> None:
    # A sleep while nothing could be written is written behind the recovery.
    late = facts.recovery is not None and isinstance(event, e.SuspensionDetected)
    facts.free = max(facts.free, event.at) if late else event.at
    facts.degraded = False
    if isinstance(event, e.StoreRecovered):
        facts.recovered = event.at
        facts.numbers_lost, facts.unfinished = True, facts.initializing is not None
    if isinstance(event, e.SuspensionDetected):  # it may have slept over a write
        facts.slow += min(event.suspended_ms * MILLISECOND, SPAN)


def waited_for_disk(facts: Facts, event: e.StoreSlow) -> None:
    lasted = min(event.duration_ms * MILLISECOND, SPAN)
    facts.slow += lasted
    facts.last_slow = event.at, lasted
    if lasted > UNRECORDED:
        facts.free = event.at
    facts.suspects = [one for one in facts.suspects if one.gap > lasted + UNRECORDED]


def degrades(facts: Facts, _: e.StoreDegraded) -> None:
    facts.degraded = True
