"""What monitoring asks for, in the text format of Prometheus. Pure: made anew from what `status`
shows and from the record of the last day. There is nothing to keep, and a restart resets nothing.

`METRICS` is the table; the page of the manual is made from it. Every series of a task is there
from its registration on: an alert on one that never succeeded can work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from cronpoll.core.chronicle import Past
from cronpoll.core.view import Attempt, Balance, Status, Task

QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)


class Metric(NamedTuple):
    """`labels`: besides the value."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


_TASK: Final = ("task",)
METRICS: Final = (
    Metric("cronpoll_up", "Whether a scheduler is at work with this state."),
    Metric("cronpoll_degraded", "Whether state cannot be written, so that nothing starts."),
    Metric(
        "cronpoll_config_rejected", "Whether the registry file on disk is not the one in force."
    ),
    Metric(
        "cronpoll_clock_doubted", "Whether the clock is not believed, so that nothing due starts."
    ),
    Metric(
        "cronpoll_slow_write_seconds", "How long the last write took that took a second or more."
    ),
    Metric("cronpoll_tasks", "Tasks, by state.", ("state",)),
    Metric("cronpoll_task_registered", "Whether the file has this task.", _TASK),
    Metric("cronpoll_task_last_success_timestamp_seconds", "0: it never succeeded.", _TASK),
    Metric("cronpoll_task_last_run_succeeded", "NaN: it never ran.", _TASK),
    Metric("cronpoll_task_overdue_seconds", "Since when a start is owed that has not come.", _TASK),
    Metric(
        "cronpoll_task_consecutive_failures",
        "Failed runs since the last success, of the last 24 hours.",
        _TASK,
    ),
    Metric("cronpoll_task_next_run_timestamp_seconds", "NaN: nothing more is due.", _TASK),
    Metric("cronpoll_task_running_seconds", "For how long its oldest run has been running.", _TASK),
    Metric("cronpoll_task_suspended", "Whether nothing of it starts but by hand.", _TASK),
    Metric(
        "cronpoll_due",
        "What was due in the last 24 hours, by what became of it: the balance. `unaccounted` is 0, "
        "or something is wrong.",
        ("outcome",),
    ),
    Metric(
        "cronpoll_start_lag_seconds",
        "From the due instant to the start, over the runs of the last 24 hours.",
        ("quantile",),
    ),
    Metric(
        "cronpoll_run_duration_seconds", "Of the runs of the last 24 hours.", ("task", "quantile")
    ),
)


class Sample(NamedTuple):
    metric: str
    labels: tuple[str, ...]
    value: float


def exposition(status: Status, pasts: Mapping[str, Past]) -> str:
    """Everything, as a scrape wants it. `pasts`: the record of the last day."""
    found: dict[str, list[Sample]] = {metric.name: [] for metric in METRICS}
    for sample in _samples(status, pasts):
        found[sample.metric].append(sample)
    lines: list[str] = []
    for metric in METRICS:
        lines += (f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge")
        for sample in found[metric.name]:
            lines.append(_line(metric, sample))
    return "\n".join(lines) + "\n"


def _line(metric: Metric, sample: Sample) -> str:
    labels = ",".join(
        f'{name}="{_escaped(value)}"'
        for name, value in zip(metric.labels, sample.labels, strict=True)
    )
    number = "NaN" if math.isnan(sample.value) else f"{sample.value:.15g}"
    return f"{metric.name}{{{labels}}} {number}" if labels else f"{metric.name} {number}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _samples(status: Status, pasts: Mapping[str, Past]) -> Iterator[Sample]:
    daemon = status.daemon
    slow = 0.0 if daemon.slow_write is None else daemon.slow_write.duration_ms / 1_000
    yield Sample("cronpoll_up", (), daemon.alive)
    yield Sample("cronpoll_degraded", (), bool(daemon.degraded))
    yield Sample("cronpoll_config_rejected", (), daemon.rejected is not None)
    yield Sample("cronpoll_clock_doubted", (), daemon.clock is not None)
    yield Sample("cronpoll_slow_write_seconds", (), slow)
    states: dict[str, int] = {}
    for task in status.tasks:
        states[task.state] = states.get(task.state, 0) + 1
    for state, number in sorted(states.items()):
        yield Sample("cronpoll_tasks", (state,), number)
    runs = {name: _runs(past) for name, past in pasts.items()}
    for task in status.tasks:
        yield from _of_task(task, status.at, runs.get(task.task, []))
    if isinstance(status.balance, Balance):
        for part in Balance.__struct_fields__[3:]:
            yield Sample("cronpoll_due", (part,), getattr(status.balance, part))
    lags = [
        (run.started_at - run.due_at).total_seconds()
        for each in runs.values()
        for run in each
        if run.trigger == "due"
    ]
    for quantile, value in _quantiles(lags):
        yield Sample("cronpoll_start_lag_seconds", (quantile,), value)


def _of_task(task: Task, now: datetime, runs: list[Attempt]) -> Iterator[Sample]:
    def sample(name: str, value: float) -> Sample:
        return Sample(f"cronpoll_task_{name}", (task.task,), value)

    def since(moment: datetime | None) -> float:
        return 0.0 if moment is None else max((now - moment).total_seconds(), 0.0)

    success, failure = task.last_success, task.last_failure
    succeeded = math.nan
    if success is not None or failure is not None:
        succeeded = failure is None or (success is not None and success >= failure)
    following = math.nan if task.next_run is None else task.next_run.timestamp()
    yield sample("registered", task.registered)
    yield sample("last_success_timestamp_seconds", 0 if success is None else success.timestamp())
    yield sample("last_run_succeeded", succeeded)
    yield sample("overdue_seconds", since(task.owed_since))
    yield sample("consecutive_failures", _failures(runs))
    yield sample("next_run_timestamp_seconds", following)
    yield sample("running_seconds", since(task.running_since))
    yield sample("suspended", bool(task.suspended_by))
    durations = [run.duration_ms / 1_000 for run in runs if run.duration_ms is not None]
    for quantile, value in _quantiles(durations):
        yield Sample("cronpoll_run_duration_seconds", (task.task, quantile), value)


def _runs(past: Past) -> list[Attempt]:
    every = (run for runs in past.by_period.values() for run in runs)
    return sorted(every, key=lambda run: run.started_at)


def _failures(runs: list[Attempt]) -> int:
    number = 0
    for run in reversed(runs):
        if run.outcome == "succeeded":
            break
        number += run.outcome == "failed"
    return number


def _quantiles(values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """The value below which so many of them lie: one that was measured, none in between."""
    ordered = sorted(values)
    for quantile in QUANTILES:
        if ordered:
            rank = max(math.ceil(quantile * len(ordered)), 1)
            yield f"{quantile:g}", ordered[rank - 1]
