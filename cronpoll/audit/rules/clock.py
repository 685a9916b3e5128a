"""Time: that it runs forwards but where the clock was set, and that a step, a sleep or a sick disk
was what its record says. Each excuses what it held up, and nothing before it.

A record of a sleep is looked at together with the next one: if the clock was set meanwhile, that is
written behind it, and both bear the time after. So is the recovery of a disk: what happened while
nothing could be written follows it, with the times at which it happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import (
    BOUND,
    LONG_AGO,
    PATIENCE,
    SPAN,
    UNRECORDED,
    Facts,
    HeldUp,
    Recovery,
    Suspect,
    text_of,
)
from cronpoll.audit.rules.finding import Found, Rule, Wrong, broken, rule
from cronpoll.audit.rules.timely import nobody_overdue
from cronpoll.core import events as e
from cronpoll.core.model import MILLISECOND


def backwards(facts: Facts, event: e.Event) -> None:
    """An event of an earlier time than one before it, or one that was written late."""
    recovery = facts.recovery
    if recovery is None:
        gap = facts.high - event.at
        if gap > UNRECORDED + facts.slow_until(facts.high):
            text = f"it was {text_of(facts.high)} before, and nothing says that it was set back"
            until = facts.high + UNRECORDED
            goes_on = event.at + PATIENCE
            facts.suspects.append(Suspect(Wrong(p.CLOCK, text, event), gap, until, goes_on))
            facts.unsettled = True
        return
    if isinstance(event, e.StoreSlow):
        return  # written with what came next, and that may have been the first that failed
    if event.at < recovery.since - UNRECORDED:
        text = f"of a time when the disk could be written to, and written {text_of(recovery.at)}"
        recovery.late.append(Wrong(p.CLOCK, text, event))
    elif isinstance(event, e.TaskRunStarted) and recovery.at - event.at > PATIENCE:
        recovery.late.append(Wrong(p.CLOCK, "started while nothing could be written", event))


def _overdue(facts: Facts, at: datetime) -> list[Wrong]:
    """What was overdue when something held the scheduler up. While it stops nothing is owed: of a
    journal that may turn out later."""
    if facts.stop_requested is not None:
        at = min(at, facts.stop_requested)
    found = [*nobody_overdue(facts, at)]
    # A stop waits for runs, and for nothing else.
    if found and facts.durable and (facts.open or facts.last_end >= at):
        facts.held_up += [HeldUp(wrong, at) for wrong in found]
        facts.unsettled = True
        return []
    return found


def goes_on(facts: Facts, event: e.Event) -> list[Wrong]:
    """What was wrong for certain, now that an event shows whether the scheduler was stopping."""
    if isinstance(event, e.SchedulerStopped):
        asked = event.requested_at
        found = [one.wrong for one in facts.held_up if asked is None or one.at <= asked]
    elif isinstance(event, _DECIDES) and getattr(event, "trigger", None) != "manual":
        found = [one.wrong for one in facts.held_up]
    elif isinstance(event, e.InstanceStarted):
        found = []  # it died, and nobody knows whether it was stopping
    else:
        return []
    facts.held_up.clear()
    return found


_DECIDES: Final = (
    e.TaskRunStarted,
    e.TaskMissed,
    e.TaskSkipped,
    e.TaskUnschedulable,
    e.TaskAdded,
    e.TaskOverridden,
)
"""Not by a scheduler that stops."""


def _disproved(
    facts: Facts, since: datetime, what: str, recorded: datetime | None = None
) -> list[Wrong]:
    last = recorded or facts.high
    if last - since <= UNRECORDED:
        return []
    return broken(p.CLOCK, f"{what} {text_of(since)}, and something was recorded {text_of(last)}")


def stepped(facts: Facts, _: None, event: e.ClockStepped) -> Found:
    """The step is disproved if without it the clock would show less than it had shown before."""
    if facts.recovery is not None:
        return []  # written late: what was before it may be written behind it
    unset = _by(event.at, -_step(event))
    found = _disproved(facts, unset, "without that step it was")
    if facts.free == event.at:
        return found  # it slept until now, and what was overdue before that was looked at
    # It is found out within the longest wait.
    return [*found, *_overdue(facts, unset - BOUND)]


def slept(facts: Facts, stepped: e.ClockStepped | None, event: e.SuspensionDetected) -> list[Wrong]:
    """`stepped`: by how much the clock was set meanwhile."""
    if facts.recovery is not None:
        return []
    step = timedelta(0) if stepped is None else _step(stepped)
    since = _by(event.at, -step - event.suspended_ms * MILLISECOND)
    # When it wakes, other things are found out in the same moment.
    awake = facts.high >= event.at - UNRECORDED
    found = _disproved(facts, since, "asleep since", facts.earlier if awake else facts.high)
    if stepped is None and event.at > facts.high:
        facts.high = event.at
    return [*found, *_overdue(facts, since)]


def slept_before_recovery(facts: Facts, event: e.SuspensionDetected) -> None:
    """A sleep that is written behind the recovery of a disk excuses, too, and nothing before it."""
    recovery = facts.recovery
    if recovery is None:
        return
    since = _by(event.at, -event.suspended_ms * MILLISECOND)
    wrong = [one for one in recovery.wrong if one.guarantee is p.CLOCK]
    wrong += _disproved(facts, since, "asleep since")
    if event.at < recovery.since - UNRECORDED:
        text = "asleep when the disk could be written to, and written when it had failed"
        wrong += broken(p.CLOCK, text)
    began = min(since, recovery.since)
    facts.held_up = [one for one in facts.held_up if one.at <= began]  # is looked at anew
    wrong += _overdue(facts, began)
    whose = [one._replace(event=one.event or event) for one in wrong]
    facts.recovery = recovery._replace(wrong=whose)


def slept_between(facts: Facts, event: e.SuspensionDetected) -> None:
    """The process was stopped while it wrote. What had happened before is written when it goes on,
    behind what it finds then, and only after that it is found out that it slept."""
    lasted = min(event.suspended_ms * MILLISECOND, SPAN)
    facts.suspects = [one for one in facts.suspects if one.gap > lasted + UNRECORDED]


def _step(event: e.ClockStepped) -> timedelta:
    return min(max(event.step_ms * MILLISECOND, -SPAN), SPAN)


def degraded(facts: Facts, _: None, event: e.StoreDegraded) -> Found:
    return _overdue(facts, event.at)


def slow(facts: Facts, _: None, event: e.StoreSlow) -> Found | None:
    lasted = event.duration_ms * MILLISECOND
    if lasted <= UNRECORDED:
        return None  # it excuses nothing
    since = _by(event.at, -lasted)
    found: list[Wrong] = []
    if since + UNRECORDED < facts.last_started < event.at - UNRECORDED:
        text = f"a run was started {text_of(facts.last_started)}, while the disk was written to"
        found += broken(p.CLOCK, text)
    return [*found, *_overdue(facts, since)]


def recovery_of(facts: Facts, event: e.StoreRecovered) -> Recovery:
    """What the recovery of a disk claims, and what is wrong with it unless the clock was set
    meanwhile."""
    since = _by(event.at, -event.degraded_ms * MILLISECOND)
    # Others may have been written together with the state, before this.
    wrong = _disproved(facts, since, "nothing could be written since", facts.last_started)
    wrong += _overdue(facts, since)
    return Recovery(event.at, since, [one._replace(event=one.event or event) for one in wrong], [])


def _by(at: datetime, by: timedelta) -> datetime:
    """A time moved, inside the supported years."""
    return LONG_AGO + min(max(at - LONG_AGO + by, timedelta(0)), SPAN)


RULES: Final[Mapping[type[e.Event], tuple[Rule, ...]]] = {
    e.ClockStepped: (rule(stepped, p.CLOCK),),
    e.StoreDegraded: (rule(degraded),),
    e.StoreSlow: (rule(slow, p.CLOCK),),
}
