"""What follows for a KronJob: the table of what a user sees, and equality with the daemon."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import msgspec
import pytest

from cronpoll import Registration
from cronpoll.core.steps import Now
from cronpoll.operator.decision import Job, Jobs, calendar, decide, job_name
from cronpoll.operator.kronjob import read
from cronpoll.operator.ledger import Ledger, UnreadableLedgerError, decoded, encoded
from cronpoll.testing import World, run
from tests.operator.miniature import POD, Miniature, at, manifest

RUN = ("executed", "succeeded")


def minute(text: str) -> str:
    return job_name("report", at(text))


def test_a_period_is_one_job_named_after_its_minute() -> None:
    cluster = Miniature("2026-03-01T11:59:30Z")
    cluster.until("2026-03-01T13:30:00Z")
    assert cluster.created == [minute("2026-03-01T12:00Z"), minute("2026-03-01T13:00Z")]
    assert cluster.created[0] == "report-29539440"
    assert cluster.outcomes == [("01 12:00", *RUN), ("01 13:00", *RUN)]


def test_what_passed_while_the_operator_was_down_is_one_job() -> None:
    cluster = Miniature("2026-03-01T11:59:30Z")
    cluster.until("2026-03-01T12:30:00Z")
    cluster.sleeps_until("2026-03-01T17:20:00Z")
    cluster.settle()
    assert cluster.created[1:] == [minute("2026-03-01T17:00Z")]
    missed = [event for event in cluster.events if type(event).__name__ == "TaskMissed"]
    assert [event.count for event in missed] == [4]


def test_a_period_whose_job_was_deleted_does_not_come_back() -> None:
    cluster = Miniature("2026-03-01T11:59:30Z", lasts=600)
    cluster.until("2026-03-01T12:05:00Z")
    cluster.jobs.clear()
    cluster.until("2026-03-01T12:50:00Z")
    assert cluster.created == [minute("2026-03-01T12:00Z")]
    assert cluster.outcomes == [("01 12:00", "executed", "deleted")]


@pytest.mark.parametrize(
    ("policy", "created", "outcomes"),
    [
        (
            "Queue",
            ["12:00", "14:00"],
            [("01 12:00", *RUN), ("01 13:00", "missed", ""), ("01 14:00", "executed", "running")],
        ),
        ("Forbid", ["12:00"], [("01 12:00", *RUN), ("01 14:00", "skipped", "")]),
        (
            "Allow",
            ["12:00", "13:00", "14:00"],
            [
                ("01 12:00", *RUN),
                ("01 13:00", "executed", "running"),
                ("01 14:00", "executed", "running"),
            ],
        ),
        (
            "Replace",
            ["12:00", "13:00", "14:00"],
            [
                ("01 12:00", "executed", "replaced"),
                ("01 13:00", "executed", "replaced"),
                ("01 14:00", "executed", "running"),
            ],
        ),
    ],
)
def test_what_a_period_means_while_a_job_runs(
    policy: str, created: list[str], outcomes: list
) -> None:
    cluster = Miniature("2026-03-01T11:59:30Z", lasts=2.5 * 3_600, concurrencyPolicy=policy)
    cluster.until("2026-03-01T14:45:00Z")
    assert cluster.created == [minute(f"2026-03-01T{each}Z") for each in created]
    if policy == "Forbid":  # one record for each look: both are skipped
        assert [each for each in cluster.outcomes if each[1] == "skipped"] == [
            ("01 13:00", "skipped", ""),
            ("01 14:00", "skipped", ""),
        ]
    else:
        assert cluster.outcomes == outcomes


def test_a_suspension_owes_nothing_afterwards_but_what_is_inside_its_deadline() -> None:
    for deadline, created in ((None, []), (1_200, ["2026-03-01T15:00Z"])):
        spec = {} if deadline is None else {"startingDeadlineSeconds": deadline}
        cluster = Miniature("2026-03-01T12:30:00Z", suspend=True, **spec)
        cluster.until("2026-03-01T15:10:00Z")
        cluster.edit(suspend=False)
        cluster.until("2026-03-01T15:40:00Z")
        assert cluster.created == [minute(each) for each in created]


def test_a_deadline_that_has_passed_is_a_missed_period() -> None:
    cluster = Miniature("2026-03-01T11:59:30Z", startingDeadlineSeconds=60)
    cluster.settle()
    cluster.sleeps_until("2026-03-01T12:01:01Z")
    cluster.settle()
    assert cluster.created == []
    assert cluster.outcomes == [("01 12:00", "missed", "")]


def test_an_edit_never_fires_for_the_past() -> None:
    cluster = Miniature("2026-03-01T12:10:30Z")
    cluster.until("2026-03-01T12:30:30Z")
    cluster.edit(schedule="0-29 * * * *")
    cluster.until("2026-03-01T12:59:00Z")
    assert cluster.created == []


def test_a_window_without_an_allowed_time_is_told() -> None:
    cluster = Miniature(
        "2026-03-01T11:00:30Z",
        window={"mode": "after", "duration": "10m"},
        avoid={"hours": [12]},
    )
    cluster.until("2026-03-01T13:30:00Z")
    assert [each[:2] for each in cluster.outcomes] == [
        ("01 11:00", "executed"),
        ("01 12:00", "unschedulable"),
        ("01 13:00", "executed"),
    ]


def test_history_limits_delete_the_oldest_and_the_ledger_does_not_need_them() -> None:
    cluster = Miniature("2026-03-01T11:59:30Z", successfulJobsHistoryLimit=0)
    cluster.until("2026-03-01T14:30:00Z")
    assert len(cluster.created) == 3
    assert cluster.jobs == {}
    kept = Miniature("2026-03-01T11:59:30Z", failedJobsHistoryLimit=2)
    kept.fails = True
    kept.until("2026-03-01T16:30:00Z")
    assert sorted(kept.jobs) == kept.created[-2:]


def decided(jobs: Jobs, ledger: Ledger, now: str = "2026-03-01T12:00:05Z", **spec):
    kronjob = read(manifest(**spec))
    moment = Now(at(now), 0.0, at("2026-03-01T00:00Z"))
    return decide(kronjob, ledger, jobs, moment, calendar())


def wanted() -> Ledger:
    """A ledger with a run whose Job is not there yet."""
    cluster = Miniature("2026-03-01T11:59:30Z")
    cluster.settle()
    cluster.now = at("2026-03-01T12:00:00Z")
    return cluster.look().ledger


def held(uid: str = "u1", generation: int = 1, **more) -> Jobs:
    """The Job of that run, as it is created."""
    name = minute("2026-03-01T12:00Z")
    job = Job(name, uid, "uid-report", kept=True, held=True, generation=generation, **more)
    return Jobs({name: job})


def test_a_job_is_created_by_whoever_looks_and_started_when_the_ledger_has_its_uid() -> None:
    ledger = wanted()
    asked = decided(Jobs({}), ledger)
    assert asked.ledger == ledger
    assert (asked.create, asked.start) == (ledger.runs, ())
    found = decided(held(), ledger)
    assert [run.uid for run in found.ledger.runs] == ["u1"]
    assert (found.create, found.start, found.release) == ((), found.ledger.runs, ())
    assert len(found.ledger.task.runs) == 1  # the same run


def test_a_job_of_ours_is_success_and_a_strangers_is_a_failure() -> None:
    ledger = wanted()
    name = ledger.runs[0].job
    ours = decided(Jobs({name: Job(name, "u1", "uid-report", kept=True)}), ledger)
    assert ours.ledger.runs[0].uid == "u1"
    assert (ours.start, ours.release) == ((), ((name, "u1"),))
    strange = decided(Jobs({name: Job(name, "u1", "")}), ledger)
    assert strange.ledger.runs == ()
    assert strange.ledger.entries[0].result == "failed"
    assert strange.delete == strange.release == ()


def test_a_job_of_a_call_that_was_long_on_its_way_is_deleted_and_never_started() -> None:
    bound = decided(held(), wanted()).ledger
    for ledger in (bound, decided(held()._replace(live=True), bound, "2026-03-01T12:30Z").ledger):
        late = decided(held("u2")._replace(live=True), ledger)
        assert [(each.uid, each.reason) for each in late.delete] == [("u2", "unknown")]
        assert [uid for _, uid in late.release] == ["u2"]
        assert late.start == late.create == ()
        assert late.ledger.entries[0].result == "deleted"


def test_a_job_that_is_deleted_before_it_is_started_counts_as_the_one_of_its_period() -> None:
    found = decided(held(deleting=True), wanted())
    assert (found.start, [uid for _, uid in found.release]) == ((), ["u1"])
    gone = decided(Jobs({}, live=True), found.ledger)
    assert gone.ledger.entries[0].result == "deleted"
    assert gone.create == ()


def test_a_watch_is_not_enough_where_a_running_job_decides() -> None:
    ledger = wanted()
    name = ledger.runs[0].job
    running = {name: Job(name, "u1", "uid-report")}
    bound = decided(Jobs(running), ledger).ledger
    assert decided(Jobs({}), bound).need_live  # it is missing
    assert not decided(Jobs(running), bound).need_live
    assert decided(Jobs(running), bound, "2026-03-01T13:00:05Z").need_live
    assert not decided(Jobs(running, live=True), bound, "2026-03-01T13:00:05Z").need_live


def test_the_ledger_survives_paper_and_a_strange_one_is_refused() -> None:
    cluster = Miniature("2026-03-01T11:00:30Z", window={"mode": "after", "duration": "50m"})
    cluster.until("2026-03-02T12:20:00Z")
    cluster.edit(window={"mode": "around", "duration": "3h"}, schedule="* * * * *")
    cluster.until("2026-03-02T13:00:00Z")
    cluster.edit(schedule="1-59 * * * *")
    cluster.until("2026-03-02T13:10:00Z")
    ledger = decoded(cluster.written)
    assert len(ledger.task.handled) > 10
    assert len(cluster.written["handled"]) < len(ledger.task.handled) / 5
    assert encoded(ledger) == cluster.written
    for broken in (
        {},
        {"format": 2},
        {"format": 1, "task": {}},
        [],
        None,
        {**cluster.written, "handled": [[1, 1, 10**9]]},
        {**cluster.written, "handled": [[1, 1, -(10**9)], [1, 1, 10**9]]},
    ):
        with pytest.raises(UnreadableLedgerError):
            decoded(broken)


# -- the same seconds as the daemon ----------------------------------------------------------------

SOON = timedelta(seconds=10)


class Planned:
    """A KronJob that is due at 12:00, and what is decided about it with the ledger so far."""

    def __init__(self, **spec) -> None:
        self.spec, self.ledger, self.schedules = spec, None, calendar()
        self.at("11:20:00")

    def at(self, time: str, jobs: Jobs | None = None, generation: int = 1, **options):
        kronjob = read(manifest(**self.spec))
        kronjob = msgspec.structs.replace(kronjob, generation=generation)
        now = Now(at(f"2026-03-01T{time}Z"), 0.0, at("2026-03-01T10:00Z"))
        jobs = Jobs({}) if jobs is None else jobs
        decided = decide(kronjob, self.ledger, jobs, now, self.schedules, **options)
        self.ledger = decoded(encoded(decided.ledger))
        return decided


NOON = minute("2026-03-01T12:00Z")


def planned(**spec) -> Planned:
    """It was planned, and the ledger has the uid of the Job."""
    cluster = Planned(**spec)
    cluster.at("11:59:51", ahead=SOON)
    cluster.at("11:59:52", held())
    assert cluster.ledger.plan.uid == "u1"
    return cluster


def begun(live: bool = False, **more) -> Jobs:
    started = at("2026-03-01T12:00:03Z")
    job = Job(NOON, "u1", "uid-report", kept=True, started_at=started, generation=1, **more)
    return Jobs({NOON: job}, live)


def test_in_a_crowd_a_start_is_planned_some_seconds_before() -> None:
    cluster = Planned()
    assert cluster.at("11:59:45", ahead=SOON).ledger.plan is None
    found = cluster.at("11:59:51", ahead=SOON)
    assert found.ledger.plan.job == NOON
    assert (found.create, found.events) == ((found.ledger.plan,), ())
    assert (found.ledger.entries, found.ledger.runs) == ((), ())
    found = cluster.at("11:59:58", held())  # also if the crowd is gone
    assert found.ledger.plan.uid == "u1"
    assert (found.create, found.start, found.delete, found.release) == ((), (), (), ())
    assert cluster.at("12:00:01", held()).begin == found.ledger.plan


def test_without_a_plan_in_the_ledger_the_ledger_comes_first() -> None:
    assert Planned().at("12:00:01", ahead=SOON).begin is None
    cluster = Planned()
    cluster.at("11:59:51", ahead=SOON)
    found = cluster.at("12:00:01", held())  # its uid is not in the ledger yet
    assert found.begin is None
    assert [run.uid for run in found.start] == ["u1"]
    assert found.ledger.entries[0].job == NOON


@pytest.mark.parametrize("generation", [1, 2])
def test_a_plan_whose_job_was_started_was_carried_out_when_it_was_due(generation: int) -> None:
    """However late somebody looks, and whatever the spec says by then."""
    cluster = planned(startingDeadlineSeconds=20)
    cluster.spec = {"suspend": True}
    found = cluster.at("14:10:00", begun(), generation)
    (entry,) = found.ledger.entries
    assert (entry.outcome, entry.job, entry.at) == ("executed", NOON, at("2026-03-01T12:00:03Z"))
    assert [run.uid for run in found.ledger.runs] == ["u1"]
    assert (found.ledger.plan, found.create, found.release) == (None, (), ((NOON, "u1"),))
    assert found.ledger.task.is_suspended


@pytest.mark.parametrize(
    ("spec", "time", "outcome"),
    [
        ({"suspend": True}, "11:59:59", None),
        ({"suspend": True}, "12:00:01", None),
        ({"schedule": "5 13 * * *"}, "11:59:59", None),
        ({"startingDeadlineSeconds": 5}, "12:00:30", "missed"),
    ],
)
def test_a_plan_that_is_not_wanted_any_more_is_withdrawn(spec, time, outcome) -> None:
    cluster = planned(startingDeadlineSeconds=5)
    plan, cluster.spec = cluster.ledger.plan, spec
    found = cluster.at(time, held(), ahead=SOON)
    assert found.withdraw == plan
    assert (found.ledger.plan, found.begin, found.create, found.start) == (None, None, (), ())
    assert [entry.outcome for entry in found.ledger.entries] == ([outcome] if outcome else [])


def test_a_plan_of_an_earlier_spec_makes_room_for_one_of_this() -> None:
    cluster = planned()
    plan = cluster.ledger.plan
    found = cluster.at("11:59:55", held(), 2, ahead=SOON)
    assert (found.withdraw, found.ledger.plan) == (plan, None)
    found = cluster.at("11:59:56", generation=2, ahead=SOON)
    assert [(run.job, run.generation) for run in found.create] == [(NOON, 2)]
    late = cluster.at("11:59:57", held("u9"), 2, ahead=SOON)  # a creation of before the edit
    assert late.ledger.plan.uid == ""
    assert [each.reason for each in late.delete] == ["unknown"]


def test_a_planned_job_that_somebody_deletes_is_the_one_of_its_period() -> None:
    cluster = planned()
    assert cluster.at("11:59:55").need_live
    found = cluster.at("11:59:56", Jobs({}, live=True))
    assert (found.ledger.plan.uid, found.create) == ("u1", ())
    cluster.at("12:00:00", Jobs({}, live=True))
    found = cluster.at("12:00:01", Jobs({}, live=True))
    assert [(each.outcome, each.result) for each in found.ledger.entries] == [
        ("executed", "deleted")
    ]
    assert (found.ledger.plan, found.create) == (None, ())


def test_jobs_that_somebody_else_starts_are_not_planned() -> None:
    cluster = Planned(jobTemplate={"spec": {**POD["spec"], "suspend": True}})
    assert cluster.at("11:59:55", ahead=SOON).ledger.plan is None


CRONS = [
    "* * * * *",
    "0 * * * *",
    "7,37 * * * *",
    "0 3 * * *",
    "30 2 * * *",
    "15 1-4 * * 0,1",
    "0,30 0-6 * * *",
    "5 * 1,15 * *",
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
STARTS = [
    "2026-03-28T20:10:20",
    "2026-10-24T19:00:07",
    "2026-03-07T23:59:30",
    "2026-06-30T12:00:00",
    "2026-04-04T10:30:01",
]


def random_spec(chance: random.Random) -> dict:
    spec: dict = {
        "schedule": chance.choice(CRONS),
        "timeZone": chance.choice(ZONES),
        "repeatedHour": chance.choice(["both", "first"]),
        "concurrencyPolicy": chance.choice(["Queue", "Allow", "Forbid"]),
        "catchUp": chance.choice(["once", "if-run-before", "never"]),
    }
    if chance.random() < 0.3:
        spec["startingDeadlineSeconds"] = chance.choice([0, 30, 600, 7_200])
    if chance.random() < 0.6:
        spec["window"] = {
            "mode": chance.choice(["after", "around", "before"]),
            "duration": chance.choice(["0s", "45s", "10m", "3h", "1h30m"]),
        }
        name = chance.choice(["uniform", "skewEarly", "skewLate", "normal", "exponential"])
        spec["distribution"] = {"name": name}
        spec["seed"] = {
            "strategy": chance.choice(["stable", "daily", "weekly"]),
            "salt": chance.choice(["", "x"]),
        }
    if chance.random() < 0.25:
        spec["avoid"] = {"hours": [chance.randrange(24), "2-4"]}
    if chance.random() < 0.15:
        spec["only"] = {"dow": [0, 1, 3], "between": ["00:30-23:10"]}
    return spec


def registration(spec: dict, lasts: float) -> Registration:
    kronjob = read(manifest(**spec))
    options = kronjob.config.options

    async def work() -> None:
        await asyncio.sleep(lasts)

    return Registration(
        "shop/report",
        kronjob.config.cron_expression,
        work,
        timedelta(0),
        timezone=options.timezone,
        repeated_hour=options.repeated_hour,
        catch_up=options.catch_up,
        concurrency=options.concurrency,
        interrupted="abandon",
        max_attempts=1,
        suspend=options.suspend,
        deadline=None
        if options.deadline_ms is None
        else timedelta(milliseconds=options.deadline_ms),
        spread=options.spread,
    )


def told(events) -> list[tuple]:
    """What was decided, without who says it."""
    kinds = {
        "TaskRunStarted": ("due_at", "period", "started_at"),
        "TaskMissed": ("first_missed", "last_missed", "count", "was_owed"),
        "TaskSkipped": ("due_at", "period", "first_due_at", "count"),
        "TaskUnschedulable": ("first_period", "last_period", "count"),
        "TaskResumed": ("first_passed", "last_passed", "count", "open_at"),
        "TaskServedBefore": ("due_at",),
    }
    found = []
    for event in events:
        fields = kinds.get(type(event).__name__)
        if fields is not None:
            found.append((type(event).__name__, *(getattr(event, field) for field in fields)))
    return found


async def daemons_life(
    start: str, chapters: list[tuple[str, object, float]], lasts: float
) -> list[tuple]:
    world = World(start, every_minute=False, max_concurrent=100_000)
    first = True
    for verb, what, hours in chapters:
        if verb == "spec" and first:
            await world.boot([registration(what, lasts)])
            first = False
        elif verb == "spec":
            await world.reload([registration(what, lasts)])
        else:
            await world.stop()
            await world.until(world.now + timedelta(hours=hours))
            await world.boot([registration(what, lasts)])
            continue
        await world.until(world.now + timedelta(hours=hours))
    await world.stop()
    return told(world.log.events)


def operators_life(
    start: str, chapters: list[tuple[str, object, float]], lasts: float
) -> list[tuple]:
    cluster = Miniature(start, lasts=lasts)
    for verb, what, hours in chapters:
        goal = cluster.now + timedelta(hours=hours)
        if verb == "down":
            cluster.now = cluster.since = goal
            cluster.settle()
            continue
        cluster.spec = dict(what)
        cluster.until(goal)
    return told(cluster.events)


def random_life(seed: int):
    chance = random.Random(seed)
    start = chance.choice(STARTS) + "+00:00"
    spec = random_spec(chance)
    # Runs that outlast an edit or a stop are told apart there: a stop of the daemon waits for them.
    lasts = chance.choice([0.0, 0.0, 20.0, 400.0, 5_000.0])
    chapters: list = [
        ("spec", spec, 3 if spec["schedule"].startswith("*") else chance.choice([9, 26]))
    ]
    if lasts == 0.0:
        for _ in range(chance.randrange(4)):
            kind = chance.random()
            if kind < 0.35:
                chapters.append(("down", spec, chance.choice([0.4, 2, 30])))
            elif kind < 0.6:
                spec = {**spec, "suspend": not spec.get("suspend", False)}
                chapters.append(("spec", spec, chance.choice([0.2, 2, 9])))
            else:
                spec = {**random_spec(chance), "suspend": spec.get("suspend", False)}
                chapters.append(("spec", spec, chance.choice([0.2, 2, 9])))
    return start, chapters, lasts


def same(seeds: range) -> None:
    starts = 0
    for seed in seeds:
        start, chapters, lasts = random_life(seed)
        daemon = run(lambda: daemons_life(start, chapters, lasts))
        operator = operators_life(start, chapters, lasts)
        assert operator == daemon, (seed, start, chapters, lasts)
        starts += sum(event[0] == "TaskRunStarted" for event in daemon)
    assert starts > 5 * len(seeds)


def test_the_operator_decides_as_the_daemon_to_the_second() -> None:
    same(range(20))


@pytest.mark.proof
@pytest.mark.parametrize("block", range(1, 5))
def test_the_operator_decides_as_the_daemon_in_many_lives(block: int) -> None:
    same(range(block * 25, block * 25 + 25))
