"""Runs that died with their process, and what may be left of them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from cronpoll.audit.facts import (
    UNRECORDED,
    UNTOLD,
    Facts,
    Task,
)
from cronpoll.audit.fold.passing import explained
from cronpoll.audit.fold.runs import closed, lock_is_free
from cronpoll.core import events as e
from cronpoll.core.model import (
    QUARANTINE_DEATHS,
    TaskConfig,
)


class Death(NamedTuple):
    """What died with a process. `unseen`: its start is not in the log, for the process died before
    its line. `lost`: nothing of the task was open, as far as the record goes. `newest`: it was the
    attempt that decides. `deaths`: how many processes have died with the task by now."""

    unseen: bool
    lost: bool
    excused: bool
    newest: bool
    counts: bool
    deaths: int

    def restarts(self, config: TaskConfig) -> bool:
        return self.newest and config.options.interrupted == "restart"


def death_of(facts: Facts, task: Task, event: e.TaskOrphaned) -> Death:
    unseen = not facts.durable and _started_unseen(facts, task, event)
    lost = not unseen and not task.runs and task.interrupted is None
    excused = lost and not facts.durable and may_be_lost(facts, task)
    newest = task.newest in task.runs and task.newest not in task.detached
    newest = newest and task.newest not in task.stop_ordered
    if not facts.durable and not newest:
        alone = unseen or (not task.runs and (excused or not lost))
        newest = alone or _newest_seems_ended(facts, task, event)
    deaths = task.deaths
    if lost and not facts.durable:
        deaths = task.deaths_before  # as if the end that is in the log had never been
    counts = bool(task.runs) or unseen or (lost and not facts.durable)
    return Death(unseen, lost, excused, newest, counts, deaths + counts)


def _newest_seems_ended(facts: Facts, task: Task, event: e.TaskOrphaned) -> bool:
    """Whether the end of the newest run, which is in the log, was lost with the process, as the
    record of its death says; another one was open."""
    ended = task.newest not in task.runs
    return event.restart is True and ended and may_be_lost(facts, task)


def _newest_ended_last(task: Task) -> bool:
    """Whether the last end in the log is that of the attempt that decides, not of a run by hand."""
    by_hand = task.run_began == task.last_attempt != task.last_start
    return task.newest not in task.runs and not by_hand


def _started_unseen(facts: Facts, task: Task, event: e.TaskOrphaned) -> bool:
    """Whether the process died between the record of a start and its line in the log."""
    at = event.last_execution_time
    if at is None or at < facts.last_started:
        return False
    return task.last_attempt is None or at > task.last_attempt


def may_be_lost(facts: Facts, task: Task) -> bool:
    """Whether the last end in the log can have been lost: by an earlier instance, and none of
    whose starts came later."""
    if task.newest is None or task.newest.rpartition("-")[0] == facts.instance:
        return task.newest is None
    return task.last_end is None or facts.last_started - task.last_end <= UNRECORDED


def orphaned(facts: Facts, task: Task, event: e.TaskOrphaned) -> None:
    task.last = event
    if event.reason == "interrupted":
        _died_with(facts, task, event)
        return
    facts.registered -= task.registered
    task.registered = False
    task.retry = task.owed_at = task.owed_nominal = task.interrupted = None
    task.on_start = None
    task.ordered.clear()
    task.detached = set(task.runs)


def _died_with(facts: Facts, task: Task, event: e.TaskOrphaned) -> None:
    death = death_of(facts, task, event)
    task.declared_in = facts.instance
    restart, at = event.restart, event.last_execution_time
    if restart is None:
        restart = task.interrupted is not None or death.restarts(task.config)
    if death.unseen and at is not None:
        _unseen_start(task, at)
    elif death.newest and not facts.durable and _newest_ended_last(task):
        # An end that is in the log was lost with the process, and with it what it made due.
        task.retry = None
        for other in facts.tasks.values():
            if other.config.options.after == task.name and other.owed_at == task.last_end:
                other.owed_at = other.owed_nominal = None
        if task.period is not None and task.period in task.succeeded:
            task.succeeded.remove(task.period)
    task.interrupted = event.at if restart else None
    told = death.deaths if event.deaths is None else event.deaths
    unsure = not facts.durable and told < death.deaths and not task.runs
    if death.counts and death.deaths >= QUARANTINE_DEATHS and not unsure:
        task.quarantine = UNTOLD  # until the record says how long
    task.deaths = told
    task.died_since = True
    number = len(task.runs)
    task.remains.update(dict.fromkeys(task.runs))
    task.runs, task.detached = {}, set()
    task.processes.clear()
    closed(facts, task, number, event.at)
    task.free = event.at


def _unseen_start(task: Task, at: datetime) -> None:
    task.settled = max(task.settled, at)
    task.served = at if task.served is None else max(task.served, at)
    task.newest = task.period = task.retry = task.owed_at = task.owed_nominal = None
    task.announced = task.quarantine = task.on_start = None
    explained(task)
    task.last_start = task.last_attempt = at
    task.ran_before = True


def quarantined(facts: Facts, task: Task, event: e.TaskQuarantined) -> None:
    task.died_since = False
    task.quarantine = task.quarantine_told = facts.unset(event.until)
    task.quarantine_cut = False
    task.free = event.until
    task.last = event


def process_started(facts: Facts, event: e.TaskProcessStarted) -> None:
    task = facts.tasks.get(event.task_name)
    if task is not None and event.run_id in task.runs:
        task.processes.add(event.run_id)


def survivor_found(facts: Facts, event: e.TaskSurvivorFound) -> None:
    facts.held.setdefault(event.task_name, {})[event.run_id, event.pid] = None


def survivors_gone(facts: Facts, event: e.TaskSurvivorsGone) -> None:
    task = facts.tasks.get(event.task_name)
    held = facts.held.get(event.task_name, {})
    for run_id, pid in [*held]:
        if event.run_ids is None or run_id in event.run_ids:
            del held[run_id, pid]
    if task is not None:
        for run_id in [*task.remains]:
            if event.run_ids is None or run_id in event.run_ids:
                del task.remains[run_id]
    if held:
        return  # others are left
    facts.held.pop(event.task_name, None)
    facts.maybe_held.discard(event.task_name)
    if task is not None:
        task.free = event.at
        lock_is_free(facts, task, event.at)
