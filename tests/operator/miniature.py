"""A cluster in miniature: decisions are carried out at once and exactly, Jobs last as long as they
are told to. It shows what `decide` decides; what a real server does to it is tested elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cronpoll.core.steps import Now
from cronpoll.operator.decision import Decision, Job, Jobs, calendar, decide
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import decoded, encoded

POD = {
    "spec": {
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        }
    }
}
_LIMITS = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def manifest(name: str = "report", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cronpoll.dev/v1alpha1",
        "kind": "KronJob",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1},
        "spec": {"schedule": "0 * * * *", "jobTemplate": POD, **spec},
    }


class Miniature:
    def __init__(self, start: str, lasts: float = 0.0, name: str = "report", **spec: Any) -> None:
        self.now = at(start)
        self.since = self.now
        self.name, self.lasts = name, lasts
        self.spec = spec
        self.schedules = calendar()
        self.written: Any = None
        self.jobs: dict[str, Job] = {}
        self.ends: dict[str, tuple[datetime, str]] = {}
        self.events: list[Any] = []
        self.created: list[str] = []
        self.deleted: list[tuple[str, str]] = []
        self.look_at: datetime | None = self.now
        self.fails = False

    def edit(self, **spec: Any) -> None:
        self.spec |= spec
        self.look_at = self.now

    def look(self) -> Decision:
        kronjob = read(manifest(self.name, **self.spec))
        assert not isinstance(kronjob, list), kronjob
        for name, (ends, state) in list(self.ends.items()):
            if ends <= self.now and name in self.jobs:
                job = self.jobs[name]
                self.jobs[name] = Job(name, job.uid, job.owner, state, ends, "it broke", job.kept)
                del self.ends[name]
        ledger = None if self.written is None else decoded(self.written)
        now = Now(self.now, self.now.timestamp(), self.since)
        decision = decide(kronjob, ledger, Jobs(self.jobs, live=True), now, self.schedules)
        self.written = encoded(decision.ledger)
        self.events += decision.events
        for run in decision.create:
            assert run.job not in self.jobs
            self.created.append(run.job)
            uid = f"uid-{len(self.created)}"
            self.jobs[run.job] = Job(run.job, uid, kronjob.uid, kept=True, held=True, generation=1)
        for run in decision.start:
            assert self.jobs[run.job].uid == run.uid
            self.jobs[run.job] = Job(run.job, run.uid, kronjob.uid)
            self.ends[run.job] = (
                self.now + timedelta(seconds=self.lasts),
                "failed" if self.fails else "succeeded",
            )
        for name, _, reason, _ in decision.delete:
            self.deleted.append((name, reason))
            self.jobs.pop(name, None)
            self.ends.pop(name, None)
        for name, _ in decision.release:
            if name in self.jobs:
                job = self.jobs[name]
                self.jobs[name] = Job(name, job.uid, job.owner, job.state, job.ended_at, job.error)
        self.look_at = decision.look_at
        return decision

    def settle(self) -> None:
        """Look until nothing follows any more."""
        for _ in range(20):
            before = self.written
            decision = self.look()
            done = not (decision.create or decision.start or decision.delete)
            if self.written == before and done:
                return
        raise AssertionError("no end of looks")

    def until(self, moment: str | datetime) -> None:
        """Let time pass, with a look whenever something is due or a Job ends."""
        goal = at(moment) if isinstance(moment, str) else moment
        while True:
            self.settle()
            coming = [ends for ends, _ in self.ends.values()]
            coming += [] if self.look_at is None else [self.look_at]
            following = min((each for each in coming if each > self.now), default=None)
            if following is None or following > goal:
                break
            self.now = following
        self.now = goal
        self.settle()

    def sleeps_until(self, moment: str) -> None:
        """The operator does not run. Jobs do."""
        self.now = self.since = at(moment)

    @property
    def outcomes(self) -> list[tuple[str, str, str]]:
        """The outcomes of the last periods, oldest first: period, outcome, result."""
        entries = decoded(self.written).entries
        return [
            (f"{entry.period:%d %H:%M}", entry.outcome, entry.result or "")
            for entry in reversed(entries)
        ]
