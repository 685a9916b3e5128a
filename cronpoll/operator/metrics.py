"""What the operator counts, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from cronpoll.core import events as e
from cronpoll.core.metrics import labelled
from cronpoll.operator.server import Requested

_BUCKETS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

_EVENTS: Final[dict[type[e.Event], str]] = {
    e.TaskRunStarted: "started",
    e.TaskRunCompleted: "succeeded",
    e.TaskRunFailed: "failed",
    e.TaskRunReplaced: "replaced",
    e.TaskRunInterrupted: "interrupted",
}


class Metrics:
    def __init__(self) -> None:
        self.runs: Counter[tuple[str, ...]] = Counter()
        self.periods: Counter[tuple[str, ...]] = Counter()
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.watches: Counter[tuple[str, ...]] = Counter()
        self.dropped_events = 0
        self.late: list[int] = [0] * (len(_BUCKETS) + 1)
        self.late_sum = 0.0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def happened(self, task: str, event: e.Event) -> None:
        namespace, _, name = task.partition("/")
        word = _EVENTS.get(type(event))
        if word is not None:
            self.runs[namespace, name, word] += 1
        match event:
            case e.TaskMissed():
                self.periods[namespace, name, "missed"] += event.count
            case e.TaskSkipped():
                self.periods[namespace, name, "skipped"] += event.count
            case e.TaskUnschedulable():
                self.periods[namespace, name, "unschedulable"] += event.count
            case e.TaskResumed():
                self.periods[namespace, name, "skipped"] += event.count
            case e.TaskRunStarted():
                self.periods[namespace, name, "executed"] += 1

    def forget(self, namespace: str, name: str) -> None:
        """Of a KronJob that is gone nothing more is told."""
        for counter in (self.runs, self.periods):
            for key in [key for key in counter if key[:2] == (namespace, name)]:
                del counter[key]

    def created(self, late_seconds: float) -> None:
        late = max(late_seconds, 0.0)
        self.late_sum += late
        for number, bound in enumerate(_BUCKETS):
            if late <= bound:
                self.late[number] += 1
        self.late[-1] += 1

    def requested(self, request: Requested) -> None:
        verb, resource, status = request
        self.requests[verb, resource if resource in _RESOURCES else "object", str(status)] += 1

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        of_object = ("namespace", "kronjob")
        yield from _family(
            "cronpoll_runs_total", "Runs, by how they went.", (*of_object, "outcome"), self.runs
        )
        yield from _family(
            "cronpoll_periods_total",
            "Periods that have got their outcome.",
            (*of_object, "outcome"),
            self.periods,
        )
        yield from _family(
            "cronpoll_operator_requests_total",
            "Requests to the API server; code 0: no answer.",
            ("verb", "resource", "code"),
            self.requests,
        )
        yield from _family(
            "cronpoll_operator_watch_total",
            "Lists and watches, by what became of them.",
            ("what", "resource"),
            self.watches,
        )
        yield "# HELP cronpoll_start_lag_seconds From the chosen time to the start of the Job."
        yield "# TYPE cronpoll_start_lag_seconds histogram"
        for bound, number in zip((*map(str, _BUCKETS), "+Inf"), self.late, strict=True):
            yield f'cronpoll_start_lag_seconds_bucket{{le="{bound}"}} {number}'
        yield f"cronpoll_start_lag_seconds_sum {self.late_sum}"
        yield f"cronpoll_start_lag_seconds_count {self.late[-1]}"
        yield "# HELP cronpoll_operator_events_dropped_total Kubernetes Events that were not sent."
        yield "# TYPE cronpoll_operator_events_dropped_total counter"
        yield f"cronpoll_operator_events_dropped_total {self.dropped_events}"
        for name, (words, value) in self.gauges.items():
            yield f"# HELP {name} {words}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {value():g}"


_RESOURCES: Final = frozenset(("kronjobs", "jobs", "leases", "events", "status"))


def _family(
    name: str, words: str, labels: tuple[str, ...], values: Counter[tuple[str, ...]]
) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} counter"
    for key, value in sorted(values.items()):
        yield f"{name}{{{labelled(zip(labels, key, strict=True))}}} {value}"
