"""The facts of a state: of one that a record begins with, or that stands for what is missing."""

from __future__ import annotations

from datetime import timedelta

from cronpoll.audit.facts import (
    LONG_AGO,
    Facts,
    Run,
    Task,
    text_of,
)
from cronpoll.core.model import (
    Book,
    TaskState,
)


def begin(facts: Facts, book: Book) -> None:
    """The record begins here, or events before are missing: what the state says is believed."""
    if facts.events:
        facts.note("events are missing from the record; what happened in between is not judged")
        text = f"events after {text_of(facts.last)} are missing: what happened then is not judged"
        facts.missing.update(dict.fromkeys((*facts.tasks, *book.tasks), text))
    elif book.tasks:
        facts.note("the record begins with a state; what was before it is not judged")
    facts.tasks = {name: _from_state(facts, state) for name, state in book.tasks.items()}
    facts.registered = sum(task.registered for task in facts.tasks.values())
    facts.open = sum(len(task.runs) for task in facts.tasks.values())
    facts.scheduler, facts.instance = book.scheduler_identifier, book.instance_id
    facts.boot_id, facts.new_boot = book.boot_id, None
    facts.state = "running" if book.instance_open else "stopped"
    facts.begun, facts.bound, facts.bound_unknown = True, None, True
    facts.maybe_held = {name for name, state in book.tasks.items() if state.maybe_alive}
    ended = any(state.run_began is not None for state in book.tasks.values())
    facts.effects = ended or bool(book.boot_id)  # who wrote either knows of effects
    facts.last_number, facts.last_started, facts.cut_off = -1, LONG_AGO, None
    facts.high, facts.recovery, facts.slept, facts.unsettled = LONG_AGO, None, None, False
    facts.suspects.clear()
    facts.held_up.clear()
    facts.to_follow = {}
    facts.full_since, facts.full_steps = LONG_AGO, -1
    facts.believed = None
    facts.held.clear()


def _from_state(facts: Facts, state: TaskState) -> Task:
    task = facts.task(state.task_name, state.config, state.registered_at)
    task.registered = state.registered
    task.lost_until = state.unschedulable_until
    task.settled, task.served = state.settled_until, state.latest_start
    for run in state.runs:
        period = state.due_at if run.run_id == state.newest_run else None
        instance = run.run_id.rpartition("-")[0]
        nominal = None if period is None else state.period or period
        task.runs[run.run_id] = Run(run.started_at, period, run.manual, instance, nominal=nominal)
    task.detached = {run.run_id for run in state.runs if run.detached}
    task.newest, task.period, task.nominal = state.newest_run, state.due_at, state.period
    task.attempt, task.deaths = state.attempt, state.deaths
    if state.retry_at is not None:
        task.retry = task.retry_told = facts.unset(state.retry_at)
        task.retry_cut = True
    task.retry_delay = timedelta(milliseconds=state.retry_after_ms)
    if state.due_at is not None:
        task.started.append(state.due_at)
    until = state.quarantined_until
    if until is not None:
        task.quarantine = task.quarantine_told = facts.unset(until)
        task.quarantine_cut = True
    task.owed_at, task.owed_nominal = state.owed_at, state.owed_period
    task.on_start = state.on_start_at
    task.interrupted = LONG_AGO if state.interrupted else None
    task.suspended = state.suspended
    asleep_until = state.suspended_until
    if asleep_until is not None:
        task.asleep_until = task.asleep_told = facts.unset(asleep_until)
        task.asleep_cut = True
    said = state.suspension
    task.asleep_for = timedelta(milliseconds=0.0 if said is None else said.for_ms)
    task.ordered = {start.due_at for start in state.ordered}
    task.stop_ordered = {run.run_id for run in state.runs if run.stop_ordered}
    task.handled = frozenset(state.handled)
    task.last_start, task.last_end = state.started_at, state.ended_at
    task.run_began = state.run_began
    task.last_attempt = state.last_attempt_at
    task.ran_before = state.last_attempt_at is not None
    task.remains = dict.fromkeys(run.run_id for run in state.maybe_alive)
    task.processes = {run.run_id for run in state.runs if run.process is not None}
    task.by_file = state.config.options.suspend
    task.edited = bool(state.runs)  # perhaps, since they began
    return task
