"""What monitoring asks for, in the text format of Prometheus. Pure: gauges are made anew from what
`status` shows and from the record of the last day; counters and histograms are a `Tally`, and what
the daemon has counted itself since it began.

`METRICS` is the table; the page of the manual is made from it. Every series of a task is there
from its registration on: an alert on one that never succeeded can work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from cronpoll.core.past import Past
from cronpoll.core.tally import DURATION_SECONDS, LAG_SECONDS, Histogram, Tally
from cronpoll.core.view import Attempt, Balance, Status, Task

QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)
MOST_TASKS: Final = 10_000
"""Tasks that all have series of their own. Of more, only those that are not fine have."""
_DAY: Final = timedelta(days=1)


class Metric(NamedTuple):
    """`labels`: besides the value, and the bound of a bucket. The lines of a histogram or summary
    have words behind its name (`parts`)."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    type: Literal["gauge", "counter", "histogram", "summary"] = "gauge"

    @property
    def parts(self) -> tuple[str, ...]:
        if self.type == "histogram":
            return "_bucket", "_sum", "_count"
        return ("_sum", "_count") if self.type == "summary" and not self.labels else ("",)


_TASK: Final = ("task",)
METRICS: Final = (
    Metric("cronpoll_up", "Whether a scheduler is running with this state."),
    Metric("cronpoll_degraded", "Whether state cannot be written, so that nothing starts."),
    Metric(
        "cronpoll_config_rejected", "Whether the registry file on disk is not the one in force."
    ),
    Metric(
        "cronpoll_clock_doubted", "Whether the clock is not believed, so that nothing due starts."
    ),
    Metric(
        "cronpoll_slow_write_seconds", "How long the latest slow write took (a second or more)."
    ),
    Metric(
        "cronpoll_journal_write_seconds",
        "How long the daemon has waited for writes to its journal (fsync), since it started.",
        type="summary",
    ),
    Metric(
        "cronpoll_loop_lag_seconds",
        "How late the daemon's event loop was when last checked, every 5 seconds.",
    ),
    Metric("cronpoll_queue", "Tasks that wait for a slot (`max_concurrent`)."),
    Metric("cronpoll_running", "Runs in progress."),
    Metric(
        "cronpoll_reloads_total",
        "Versions of the registry file since the daemon started, accepted and rejected.",
        ("result",),
        "counter",
    ),
    Metric(
        "cronpoll_clock_offset_seconds",
        "How far off the clock is, according to the kernel. NaN: no time service disciplines it.",
    ),
    Metric("cronpoll_targets_down", "Notification targets that do not answer."),
    Metric("cronpoll_tasks", "Tasks, by state.", ("state",)),
    Metric(
        "cronpoll_tasks_without_series",
        f"Tasks that the metrics below leave out. If there are more than {MOST_TASKS:,} tasks, "
        "only those have series that are overdue, or neither ok, new nor running.",
    ),
    Metric("cronpoll_task_registered", "Whether the file has this task.", _TASK),
    Metric(
        "cronpoll_task_last_success_timestamp_seconds", "When it last succeeded. 0: never.", _TASK
    ),
    Metric(
        "cronpoll_task_last_run_succeeded",
        "Whether its last run succeeded. NaN: it never ran.",
        _TASK,
    ),
    Metric("cronpoll_task_overdue_seconds", "For how long a start has been owed.", _TASK),
    Metric(
        "cronpoll_task_consecutive_failures",
        "Failed runs since the last success.",
        _TASK,
    ),
    Metric("cronpoll_task_next_run_timestamp_seconds", "When it is due next. NaN: never.", _TASK),
    Metric("cronpoll_task_running_seconds", "How long its oldest run has been running.", _TASK),
    Metric("cronpoll_task_suspended", "Whether it starts only by hand.", _TASK),
    Metric(
        "cronpoll_due",
        "The balance: what was due in the last 24 hours, by outcome. `unaccounted` is 0, or "
        "something is wrong.",
        ("outcome",),
    ),
    Metric(
        "cronpoll_due_total",
        "What was due and has an outcome, by outcome.",
        ("outcome",),
        "counter",
    ),
    Metric(
        "cronpoll_start_lag_seconds",
        "Time from the due instant to the start.",
        type="histogram",
    ),
    Metric(
        "cronpoll_run_duration_seconds",
        "How long runs took that have ended.",
        ("outcome",),
        "histogram",
    ),
    Metric(
        "cronpoll_task_run_duration_seconds",
        "How long the runs of the last 24 hours took.",
        ("task", "quantile"),
        "summary",
    ),
)


_OF_TASK: Final = tuple(metric.name for metric in METRICS if metric.labels[:1] == _TASK)


class Sample(NamedTuple):
    """`part`: which line of a histogram or summary. `bound`: of a bucket."""

    metric: str
    labels: tuple[str, ...]
    value: float
    part: str = ""
    bound: str = ""


class Scrape(NamedTuple):
    """What is measured. `lines`: of the tasks that have series."""

    status: Status
    lines: Iterable[TaskLines]
    tally: Tally
    clock_offset: float | None = None


class _Made(NamedTuple):
    task: Task
    until: datetime
    lines: TaskLines


TaskLines = tuple[str, ...]
"""Of one task: for each metric of a task its line, or several, or nothing."""


def _counting_on(made: _Made, now: datetime) -> TaskLines:
    """The lines of a task, those anew that count seconds."""
    task = made.task
    if task.owed_since is None and task.running_since is None:
        return made.lines
    lines = [*made.lines]
    for sample in _seconds(task, now):
        lines[_OF_TASK.index(sample.metric)] = _line(_BY_NAME[sample.metric], sample)
    return tuple(lines)


class Texts:
    """The lines of tasks, made again only where something has changed."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def of(self, task: Task, past: Past | None, now: datetime, failures: int) -> TaskLines:
        """`failures`: in a row."""
        known = self._made.get(task.task)
        if known is not None and known.task is task and now < known.until:
            return _counting_on(known, now)
        runs = [] if past is None else _runs(past, now - _DAY)
        found = dict.fromkeys(_OF_TASK, "")
        for sample in _of_task(task, now, runs, failures):
            before = found[sample.metric]
            line = _line(_BY_NAME[sample.metric], sample)
            found[sample.metric] = f"{before}\n{line}" if before else line
        until = runs[0].started_at + _DAY if runs else datetime.max.replace(tzinfo=now.tzinfo)
        self._made[task.task] = made = _Made(task, until, tuple(found.values()))
        return made.lines

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other tasks."""
        self._made = {name: self._made[name] for name in names if name in self._made}


def with_series(tasks: Sequence[Task]) -> Sequence[Task]:
    """The tasks that have series of their own."""
    if len(tasks) <= MOST_TASKS:
        return tasks
    fine = ("ok", "new", "running")
    found = [each for each in tasks if each.state not in fine or each.owed_since is not None]
    return found[:MOST_TASKS]


def exposition(scrape: Scrape) -> str:
    """Everything, as a scrape wants it."""
    found: dict[str, list[str]] = {metric.name: [] for metric in METRICS}
    own = list(scrape.lines)
    for name, column in zip(_OF_TASK, zip(*own, strict=True), strict=False):
        found[name] += filter(None, column)
    left_out = len(scrape.status.tasks) - len(own)
    rest = Sample("cronpoll_tasks_without_series", (), left_out)
    for sample in (*_samples(scrape.status), rest, *_counters(scrape.tally), *_of_daemon(scrape)):
        found[sample.metric].append(_line(_BY_NAME[sample.metric], sample))
    lines: list[str] = []
    for metric in METRICS:
        lines += (f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}")
        lines += found[metric.name]
    return "\n".join(lines) + "\n"


_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def _line(metric: Metric, sample: Sample) -> str:
    pairs = [*zip(metric.labels, sample.labels, strict=True)]
    if sample.bound:
        pairs.append(("le", sample.bound))
    labels = labelled(pairs)
    number = "NaN" if math.isnan(sample.value) else f"{sample.value:.15g}"
    name = metric.name + sample.part
    return f"{name}{{{labels}}} {number}" if labels else f"{name} {number}"


def labelled(pairs: Iterable[tuple[str, str]]) -> str:
    """Labels with their values, as they stand between braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _counters(tally: Tally) -> Iterator[Sample]:
    for outcome, number in tally.due.items():
        yield Sample("cronpoll_due_total", (outcome,), number)
    yield from _histogram("cronpoll_start_lag_seconds", (), LAG_SECONDS, tally.lag)
    for end, histogram in tally.durations.items():
        name = "cronpoll_run_duration_seconds"
        yield from _histogram(name, (end,), DURATION_SECONDS, histogram)


def _histogram(
    name: str, labels: tuple[str, ...], bounds: tuple[float, ...], histogram: Histogram
) -> Iterator[Sample]:
    number = 0
    for bound, count in zip((*bounds, math.inf), histogram.counts, strict=True):
        number += count
        shown = "+Inf" if math.isinf(bound) else f"{bound:g}"
        yield Sample(name, labels, number, "_bucket", shown)
    yield Sample(name, labels, histogram.total, "_sum")
    yield Sample(name, labels, number, "_count")


def _of_daemon(scrape: Scrape) -> Iterator[Sample]:
    """What a daemon says of itself. One that does not answer says nothing."""
    daemon, offset = scrape.status.daemon, scrape.clock_offset
    yield Sample("cronpoll_clock_offset_seconds", (), math.nan if offset is None else offset)
    yield Sample("cronpoll_targets_down", (), len(daemon.targets_down))
    vitals = daemon.vitals
    if vitals is None:
        return
    yield Sample("cronpoll_journal_write_seconds", (), vitals.write_seconds, "_sum")
    yield Sample("cronpoll_journal_write_seconds", (), vitals.writes, "_count")
    yield Sample("cronpoll_loop_lag_seconds", (), vitals.loop_lag_seconds)
    yield Sample("cronpoll_queue", (), vitals.queue)
    yield Sample("cronpoll_running", (), vitals.running)
    yield Sample("cronpoll_reloads_total", ("accepted",), vitals.accepted)
    yield Sample("cronpoll_reloads_total", ("rejected",), vitals.rejected)


def _samples(status: Status) -> Iterator[Sample]:
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
    if isinstance(status.balance, Balance):
        for part in Balance.__struct_fields__[3:]:
            yield Sample("cronpoll_due", (part,), getattr(status.balance, part))


def _of_task(task: Task, now: datetime, runs: Iterable[Attempt], failures: int) -> Iterator[Sample]:
    def sample(name: str, value: float) -> Sample:
        return Sample(f"cronpoll_task_{name}", (task.task,), value)

    success, failure = task.last_success, task.last_failure
    succeeded = math.nan
    if success is not None or failure is not None:
        succeeded = failure is None or (success is not None and success >= failure)
    following = math.nan if task.next_run is None else task.next_run.timestamp()
    yield sample("registered", task.registered)
    yield sample("last_success_timestamp_seconds", 0 if success is None else success.timestamp())
    yield sample("last_run_succeeded", succeeded)
    yield from _seconds(task, now)
    yield sample("consecutive_failures", failures)
    yield sample("next_run_timestamp_seconds", following)
    yield sample("suspended", bool(task.suspended_by))
    durations = [run.duration_ms / 1_000 for run in runs if run.duration_ms is not None]
    for quantile, value in _quantiles(durations):
        yield Sample("cronpoll_task_run_duration_seconds", (task.task, quantile), value)


def _seconds(task: Task, now: datetime) -> Iterator[Sample]:
    """What grows by itself."""
    for name, moment in (("overdue", task.owed_since), ("running", task.running_since)):
        seconds = 0.0 if moment is None else max((now - moment).total_seconds(), 0.0)
        yield Sample(f"cronpoll_task_{name}_seconds", (task.task,), seconds)


def _runs(past: Past, since: datetime) -> list[Attempt]:
    """Those that began since then, the oldest first."""
    every = (run for runs in past.by_period.values() for run in runs if run.started_at >= since)
    return sorted(every, key=lambda run: run.started_at)


def _quantiles(values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """The value below which so many of them lie: one that was measured, none in between."""
    ordered = sorted(values)
    for quantile in QUANTILES:
        if ordered:
            rank = max(math.ceil(quantile * len(ordered)), 1)
            yield f"{quantile:g}", ordered[rank - 1]
