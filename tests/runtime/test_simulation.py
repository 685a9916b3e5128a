"""The simulation itself: some lives of every kind, and that it notices when the scheduler is broken
on purpose.

Many more lives are in a command of their own: `python -m tests.simulation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from cronpoll.core import (
    choices,
    forecast,
    machine,
    model,
    owed,
    periods,
    reconcile,
    steps,
    windows,
)
from cronpoll.core.zones import EARLIEST
from cronpoll.runtime import clockwatch, engine, roster
from cronpoll.runtime.admission import Admission
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.lingering import Lingering
from cronpoll.runtime.simulation.disk import SimulatedDisk
from cronpoll.runtime.survivors import Survivors
from cronpoll.store.journal.writer import Journal
from cronpoll.testing import run
from tests.simulation import asked
from tests.simulation.explore import explore, judged, told
from tests.simulation.life import Life, lived
from tests.simulation.plan import (
    HOUR,
    Behaviour,
    Constraints,
    Plan,
    Seed,
    Spread,
    Step,
    TaskPlan,
    Window,
    plan_of,
)

LIVES = 2_000 if os.environ.get("CRONPOLL_LONG") else 20


@pytest.mark.parametrize("rough", [False, True], ids=["predictable", "rough"])
def test_in_these_lives_every_promise_is_kept(rough: bool) -> None:
    found = explore(1, LIVES, rough=rough)
    assert found.failure is None, found.failure
    assert found.lives >= LIVES // 2


# -- situations that chance seldom brings about ----------------------------------------------------

BUSY = TaskPlan("a", "* * * * *", (Behaviour(200.0371),))
"""A run of it is in progress at the second minute, which stays owed when the schedule is edited."""


@pytest.mark.parametrize(
    "edited",
    [
        replace(BUSY, cron="5,35 * * * *", on_change="reset"),
        replace(
            BUSY, cron="0-59 * * * *", on_change="reset"
        ),  # to which the present minute belongs, too
        replace(BUSY, cron="5,35 * * * *", on_change="reset", suspend=True),
        replace(BUSY, cron="5,35 * * * *"),
    ],
)
def test_what_stayed_owed_in_a_suspension_has_one_outcome_when_an_edit_ends_it(
    edited: TaskPlan,
) -> None:
    asleep = Step(61, "edit", "a", replace(BUSY, cron="0,30 * * * *", suspend=True))
    plan = Plan("2026-02-27T10:00:41Z", "UTC", (BUSY,), (asleep, Step(7, "edit", "a", edited)))
    assert judged(plan)[0] == []


def test_a_run_may_end_as_replaced_when_what_was_to_replace_it_is_too_late_by_then() -> None:
    weekdays, nights = Constraints(dow=(1, 2, 3, 4, 5)), Constraints(hours=(1, 2, 3))
    spread = Spread(
        Window("before", 5 * HOUR), seed=Seed("stable", "y"), only=weekdays, avoid=nights
    )
    runs = (Behaviour(70.0371, kind="deaf"), Behaviour(200.0371, fails=True), Behaviour(200.0371))
    task = TaskPlan(
        "a", "0-59 * * * *", runs, retry_delay=1, timezone="Australia/Lord_Howe", spread=spread
    )
    task = replace(
        task, interrupted="abandon", concurrency="replace", timeout=65, max_attempts=3, deadline=20
    )
    steps = (
        Step(200, "stop", amount=100_000),
        Step(7, "sleep", amount=90),
        Step(200, "nothing"),
        Step(1, "leave out", "b"),
    )
    plan = Plan("2026-03-28T23:58:17Z", "Australia/Lord_Howe", (task,), steps)
    assert judged(plan)[0] == []


def test_a_retry_waits_for_a_run_beside_it_until_the_next_minute_overtakes_it() -> None:
    runs = (Behaviour(200.0371, kind="deaf"), Behaviour(4000.0371, kind="deaf"))
    task = TaskPlan(
        "a", "0,30 * * * *", runs, retry_delay=0, concurrency="allow", timeout=65, max_attempts=3
    )
    plan = Plan("2026-02-27T10:20:41Z", "UTC", (task,), (Step(8_000, "nothing"),))
    assert judged(plan)[0] == []


# -- broken on purpose -----------------------------------------------------------------------------


def nothing_is_fsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "fsync", lambda disk, _: disk._called("fsync"))


def starts_come_before_their_record(patch: pytest.MonkeyPatch) -> None:
    original = engine.Engine._carry_out

    async def eager(self, batch):
        runs, batch.runs = batch.runs, []
        self.underway.launch(runs)
        return await original(self, batch)

    patch.setattr(engine.Engine, "_carry_out", eager)


def retries_are_late(patch: pytest.MonkeyPatch) -> None:
    original = steps.retry_instant

    def later(*arguments):
        due = original(*arguments)
        return None if due is None else due + timedelta(seconds=2)

    patch.setattr(steps, "retry_instant", later)


def retries_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster, "resumed_timers", lambda *_: steps.NO_TIMERS)


def interruptions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = machine._OF_TASK[machine.e.TaskOrphaned]

    def forgetful(task, event):
        original(task, event)
        task.interrupted = False

    patch.setitem(machine._OF_TASK, machine.e.TaskOrphaned, forgetful)


def what_was_served_is_forgotten_at_an_edit(patch: pytest.MonkeyPatch) -> None:
    original = machine._OF_TASK[machine.e.TaskOverridden]

    def forgetful(task, event):
        task.latest_start = None
        settled = machine.opening(event.new_state, event.at)
        original(
            task, msgspec.structs.replace(event, settled_until=event.settled_until and settled)
        )

    patch.setitem(machine._OF_TASK, machine.e.TaskOverridden, forgetful)


def an_edit_forgets_what_was_owed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "still_owed", lambda *_: ((), None))


def deadlines_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "too_late", lambda *_: False)


def suspension_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def awake(task, *arguments):
        options = msgspec.structs.replace(task.config.options, suspend=False)
        config = msgspec.structs.replace(task.config, options=options)
        return original(msgspec.structs.replace(task, suspended=False, config=config), *arguments)

    original = steps.next_step
    patch.setattr(steps, "next_step", awake)


def there_are_always_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "free", lambda *_: 1 << 62)


def nobody_looks_for_survivors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Survivors, "begin", lambda *_: None)


def nobody_is_quarantined(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "quarantine_delay", lambda *_: None)


def chosen_times_are_a_second_late(patch: pytest.MonkeyPatch) -> None:
    def late(*arguments):
        chosen = periods.chosen_second(*arguments)
        return None if chosen is None else chosen + 1

    choices.forget_choices()
    patch.setattr(choices, "chosen_second", late)


def a_clock_that_is_set_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clockwatch, "STEP_SECONDS", 1e12)


def ends_are_lost_when_the_disk_is_sick(patch: pytest.MonkeyPatch) -> None:
    original = Ledger._degrade

    def careless(self, error):
        self._backlog = []
        original(self, error)

    patch.setattr(Ledger, "_degrade", careless)


def quarantine_begins_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(owed, "QUARANTINE_DEATHS", model.QUARANTINE_DEATHS + 1)


def a_run_by_hand_is_none(patch: pytest.MonkeyPatch) -> None:
    original = machine._ended

    def forgetful(task, run_id, at):
        before = task.ended_at, task.run_began
        run = original(task, run_id, at)
        if run is not None and run.manual:
            task.ended_at, task.run_began = before
        return run

    patch.setattr(machine, "_ended", forgetful)


def a_run_by_hand_settles_what_was_owed(patch: pytest.MonkeyPatch) -> None:
    def careless(task, now):
        run = original(task, now)
        return None if run is None else (min(run[0], task.settled_until), run[1])

    original = owed.own_run
    patch.setattr(steps, "own_run", careless)


def twins_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Of periods with the same chosen time only the last one is known."""
    in_order = windows.PeriodSchedule._in_order
    periods_at = windows.PeriodSchedule.periods_at

    def alone(self, after):
        last = None
        for each in in_order(self, after):
            if last is not None and each[0] != last[0]:
                yield last
            last = each
        if last is not None:
            yield last

    patch.setattr(windows.PeriodSchedule, "_in_order", alone)
    patch.setattr(windows.PeriodSchedule, "periods_at", lambda *these: periods_at(*these)[-1:])


def of_twins_the_first_is_started(patch: pytest.MonkeyPatch) -> None:
    original = windows.PeriodSchedule.periods_at
    patch.setattr(
        windows.PeriodSchedule, "periods_at", lambda *arguments: original(*arguments)[::-1]
    )


def the_dead_are_buried_after_the_edit(patch: pytest.MonkeyPatch) -> None:
    original = reconcile._kept

    def late(task, config, now, calendar, waiting_since, restarted):
        events = original(task, config, now, calendar, waiting_since, None)
        return (
            events
            if restarted is None
            else [*events, *steps.died(task, config, now.wall, restarted)]
        )

    patch.setattr(reconcile, "_kept", late)


def the_dead_are_buried_by_the_old_rules(patch: pytest.MonkeyPatch) -> None:
    original = steps.died
    patch.setattr(steps, "died", lambda task, _, *others: original(task, task.config, *others))


def what_is_given_up_holds_no_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lingering, "hold", lambda *_: None)


def what_is_given_up_is_always_interrupted(patch: pytest.MonkeyPatch) -> None:
    original = steps.ended

    def careless(task, run_id, started_at, timers, end):
        return original(
            task, run_id, started_at, timers, end._replace(cut="stop") if end.given_up else end
        )

    patch.setattr(steps, "ended", careless)


def what_a_stop_cuts_off_has_no_end(patch: pytest.MonkeyPatch) -> None:
    original = machine._OF_TASK[machine.e.TaskRunInterrupted]

    def endless(task, event):
        original(task, msgspec.structs.replace(event, ended_at=None))

    patch.setitem(machine._OF_TASK, machine.e.TaskRunInterrupted, endless)


def catch_up_knows_the_latest_instant_alone(patch: pytest.MonkeyPatch) -> None:
    original = steps.wanted

    def narrow(task, due, latest, *others):
        return latest if original(task, due, latest, *others) == latest else None

    patch.setattr(steps, "wanted", narrow)


def a_plan_forgets_what_is_handled(patch: pytest.MonkeyPatch) -> None:
    original = forecast._starts
    patch.setattr(
        forecast,
        "_starts",
        lambda task, *others: original(msgspec.structs.replace(task, handled=()), *others),
    )


def a_plan_forgets_who_died(patch: pytest.MonkeyPatch) -> None:
    original = forecast.reconcile

    def careless(*arguments, after_restart, **others):
        return original(*arguments, after_restart=False, **others)

    patch.setattr(forecast, "reconcile", careless)


def something_is_lost_on_paper(patch: pytest.MonkeyPatch) -> None:
    original = asked.encode_events
    patch.setattr(
        asked,
        "encode_events",
        lambda events: original(events).replace(b'"settledUntil"', b'"settled"'),
    )


def a_wrong_clock_makes_it_forget_what_was_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "served_until", lambda *_: EARLIEST)


def nobody_looks_whether_the_place_is_still_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_reason_for_loss", lambda _: None)


def nobody_looks_whose_a_descriptor_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_still", lambda *_: True)


def nobody_hears_what_happens_during_a_large_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "concerns", lambda *_: None)


SABOTAGE: list[tuple[Callable[[pytest.MonkeyPatch], None], bool]] = [
    (nothing_is_fsynced, True),
    (starts_come_before_their_record, True),
    (a_wrong_clock_makes_it_forget_what_was_started, False),
    (a_wrong_clock_makes_it_forget_what_was_started, True),
    (retries_are_late, False),
    (retries_are_forgotten_at_a_restart, False),
    (interruptions_are_forgotten, False),
    (what_was_served_is_forgotten_at_an_edit, False),
    (an_edit_forgets_what_was_owed, False),
    (deadlines_are_ignored, False),
    (suspension_is_ignored, False),
    (there_are_always_slots, True),
    (nobody_looks_for_survivors, True),
    (nobody_is_quarantined, False),
    (quarantine_begins_late, False),
    (chosen_times_are_a_second_late, False),
    (a_clock_that_is_set_is_not_noticed, False),
    (ends_are_lost_when_the_disk_is_sick, True),
    (the_dead_are_buried_after_the_edit, False),
    (a_plan_forgets_who_died, False),
    (something_is_lost_on_paper, False),
]


def due_in_a_run_by_hand() -> Plan:
    task = TaskPlan("a", "2 * * * *", (Behaviour(200.0371), Behaviour(0.0371)), catch_up="never")
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    steps = (Step(30, "run", "a"), Step(1_000, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task, other), steps)


def run_by_hand_while_it_waits_for_a_slot() -> Plan:
    long = TaskPlan("b", "1 * * * *", (Behaviour(400.0371),))
    task = TaskPlan("a", "2 * * * *", (Behaviour(30.0371), Behaviour(0.0371)), concurrency="forbid")
    steps = (Step(150, "run", "a"), Step(1_000, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (long, task), steps, rough=True, max_concurrent=1)


def given_up_while_it_is_ended_for_its_timeout() -> Plan:
    deaf = (Behaviour(900.0371, kind="deaf"), Behaviour(0.0371))
    task = TaskPlan("a", "2 * * * *", deaf, timeout=60, max_attempts=1)
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    steps = (Step(169, "stop", amount=60), Step(2_000, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task, other), steps, stop_timeout=0)


def given_up() -> Plan:
    deaf = (Behaviour(900.0371, kind="deaf"), Behaviour(0.0371))
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    steps = (Step(169, "stop", amount=60), Step(2_000, "nothing"))
    tasks = (TaskPlan("a", "2 * * * *", deaf), other)
    return Plan("2026-02-27T10:00:41Z", "UTC", tasks, steps, stop_timeout=0)


def died_before_an_edit() -> Plan:
    """Of the rule that says what becomes of the dead."""
    task = TaskPlan("a", "2 * * * *", (Behaviour(4_000.0371), Behaviour(0.0371)))
    edited = replace(task, interrupted="abandon")
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    steps = (Step(200, "crash", task=edited, amount=60), Step(1_000, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task, other), steps)


def windows_of_every_minute() -> Plan:
    """Of five minutes: about once an hour two periods choose the same second."""
    spread = Spread(window=Window("after", 300_000))
    task = TaskPlan("a", "* * * * *", (Behaviour(0.0371),), spread=spread)
    return Plan("2026-02-27T10:00:41Z", "UTC", (task,), (Step(20_000, "nothing"),))


def windows_edited_before_a_stop() -> Plan:
    """Periods that were handled before the edit are chosen again, for the time of the stop."""
    spread = Spread(window=Window("around", 600_000))
    task = TaskPlan("a", "* * * * *", (Behaviour(0.0371),), spread=spread)
    later = Spread(window=Window("after", 600_000), seed=Seed("stable", "s25"))
    edited = replace(task, catch_up="never", spread=later)
    steps = (Step(3_000, "edit", task=edited), Step(300, "stop", amount=60), Step(100, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task,), steps)


def due_in_a_run_that_a_stop_cuts_off() -> Plan:
    """And once more before the scheduler is there again, which "never" leaves out."""
    long = (Behaviour(4_000.0371), Behaviour(0.0371))
    rules = {"catch_up": "never", "interrupted": "abandon"}
    task = TaskPlan("a", "2,5,10 * * * *", long, **rules)
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    steps = (Step(320, "stop", amount=600), Step(1_000, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task, other), steps, stop_timeout=0)


def every_minute_while(deed: str, amount: int = 0, more: int = 0) -> Plan:
    tasks = (
        TaskPlan("a", "* * * * *", (Behaviour(0.0371),)),
        TaskPlan("b", "* * * * *", (Behaviour(0.0371, kind="thread"),), retry_delay=1),
    )
    steps = (Step(30, deed, amount=amount, more=more), Step(200, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", tasks, steps, rough=True)


def started_during_a_large_change() -> Plan:
    """By the old schedule, at a minute that the new one has, too."""
    task = TaskPlan("a", "* * * * *", (Behaviour(0.0371),))
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))
    edit = Step(30, "slow edit", task=replace(task, cron="0-59 * * * *"), amount=100, more=300)
    steps = (edit, Step(200, "nothing"))
    return Plan("2026-02-27T10:00:41Z", "UTC", (task, other), steps, rough=True, large=True)


def place_lost() -> Plan:
    return every_minute_while("lost place", more=2)


def descriptors_given_away() -> Plan:
    return every_minute_while("taken descriptors", amount=1)


def without_threads() -> Plan:
    return every_minute_while("no threads", amount=1)


@pytest.mark.parametrize("more", [0, 1, 2], ids=["lock", "segment", "directory"])
def test_a_scheduler_whose_place_is_lost_ends(more: int) -> None:
    life = Life(every_minute_while("lost place", more=more))
    alive: list[bool] = []
    original = life.die

    async def die(*arguments, **others):
        alive.append(life.engine is not None)
        await original(*arguments, **others)

    life.die = die
    run(life.live)
    assert alive == [False]
    assert life.broken == []


def test_a_thread_that_cannot_be_had_is_a_failed_attempt_of_its_run() -> None:
    life = Life(without_threads())
    run(life.live)
    failed = life.world.events("TaskRunFailed")
    assert [(event.task_name, event.error_type) for event in failed] == [("b", "RuntimeError")]


SELDOM = {
    nobody_hears_what_happens_during_a_large_change: started_during_a_large_change,
    nobody_looks_whether_the_place_is_still_ours: place_lost,
    nobody_looks_whose_a_descriptor_is: descriptors_given_away,
    a_run_by_hand_is_none: due_in_a_run_by_hand,
    a_run_by_hand_settles_what_was_owed: run_by_hand_while_it_waits_for_a_slot,
    what_a_stop_cuts_off_has_no_end: due_in_a_run_that_a_stop_cuts_off,
    catch_up_knows_the_latest_instant_alone: due_in_a_run_that_a_stop_cuts_off,
    what_is_given_up_holds_no_name: given_up,
    the_dead_are_buried_by_the_old_rules: died_before_an_edit,
    twins_are_forgotten: windows_of_every_minute,
    of_twins_the_first_is_started: windows_of_every_minute,
    a_plan_forgets_what_is_handled: windows_edited_before_a_stop,
    what_is_given_up_is_always_interrupted: given_up_while_it_is_ended_for_its_timeout,
}
"""Lives that chance does not draw within a thousand, and that show what is broken."""


@pytest.mark.parametrize("sabotage", SELDOM, ids=lambda change: change.__name__)
def test_a_broken_scheduler_is_noticed_in_a_life_made_for_it(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SELDOM[sabotage]()
    assert judged(plan)[0] == []
    sabotage(monkeypatch)
    assert judged(plan)[0] != []


@pytest.mark.proof
@pytest.mark.parametrize(
    ("sabotage", "rough"), SABOTAGE, ids=[change.__name__ for change, _ in SABOTAGE]
)
def test_a_broken_scheduler_is_noticed(
    sabotage: Callable[[pytest.MonkeyPatch], None], rough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    try:
        found = explore(2, 1_000, rough=rough, shrink=False)
    except AssertionError:
        return  # a wall of the scheduler itself, or of the life it led
    assert found.failure is not None


# -- lives that chance seldom draws ----------------------------------------------------------------


def owed_over_an_edit(concurrency: str, rough: bool) -> Plan:
    """A minute is queued behind a long run when an edit lets it start all the same."""
    before = TaskPlan("a", "* * * * *", (Behaviour(4_000.0371), Behaviour(0.0371)))
    after = msgspec.structs.replace(before, cron="0 0 * * *", concurrency=concurrency)
    steps = (Step(200, "edit", task=after), Step(1_000, "nothing"))
    other = TaskPlan("b", "* * * * *", (Behaviour(0.0371),))  # a sign that the scheduler is alive
    return Plan("2026-02-27T10:00:41Z", "UTC", (before, other), steps, rough)


@pytest.mark.parametrize("rough", [False, True], ids=["model and judge", "judge alone"])
@pytest.mark.parametrize("concurrency", ["allow", "replace", "queue"])
def test_what_stayed_owed_over_an_edit_is_known_to_model_and_judge(
    concurrency: str, rough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = owed_over_an_edit(concurrency, rough)
    assert judged(plan)[0] == []
    original = steps._beside_schedule
    monkeypatch.setattr(
        steps,
        "_beside_schedule",
        lambda task, *rest: steps.NOTHING if task.runs else original(task, *rest),
    )
    # The judge alone does not know how long a run takes to end once it is told to: of "replace" it
    # says nothing.
    noticed = concurrency == "allow" or (concurrency == "replace" and not rough)
    assert bool(judged(plan)[0]) == noticed


def test_plan_knows_who_waits_for_a_slot_as_the_reload_does() -> None:
    """With "never" its minute is past when the edit comes; it is owed, because it has been
    waiting."""
    long = TaskPlan("a", "* * * * *", (Behaviour(4_000.0371),))
    waits = TaskPlan("b", "2 * * * *", (Behaviour(0.0371),), catch_up="never")
    edited = msgspec.structs.replace(waits, cron="0 0 * * *")
    steps = (Step(400, "edit", "b", edited), Step(1_000, "nothing"))
    plan = Plan("2026-02-27T10:00:41Z", "UTC", (long, waits), steps, rough=True, max_concurrent=1)
    assert judged(plan)[0] == []
    (edit,) = [event for event in lived(plan).log if type(event).__name__ == "TaskOverridden"]
    assert edit.owed_at is not None, "or there was nothing to foretell"


@pytest.mark.parametrize("kind", ["coroutine", "deaf"])
@pytest.mark.parametrize("concurrency", ["allow", "replace", "queue", "forbid"])
def test_plan_knows_what_begins_beside_a_start_that_was_ordered_ahead(
    concurrency: str, kind: str
) -> None:
    """Two were ordered for times that pass while nobody runs, and a minute is due, too."""
    behaviours = (Behaviour(70.0371, kind=kind), Behaviour(20.0371, kind=kind))
    task = TaskPlan("a", "* * * * *", behaviours, concurrency=concurrency)
    ordered = (Step(59, "at", amount=500), Step(1, "at", amount=500))
    steps = (*ordered, Step(7, "crash", amount=5_000), Step(1_000, "nothing"))
    plan = Plan("2026-02-27T10:00:41Z", "UTC", (task,), steps)
    assert judged(plan)[0] == []


def test_plan_knows_who_would_wait_for_a_lock() -> None:
    """Of two that start with the daemon, and beside a run that an edit comes to."""
    one, other = (
        TaskPlan(name, "* * * * *", (Behaviour(4_000.0371),), lock="l") for name in ("a", "b")
    )
    edited = msgspec.structs.replace(other, name="c")
    steps = (Step(200, "edit", "c", edited), Step(1_000, "nothing"))
    plan = Plan("2026-02-27T10:00:41Z", "UTC", (one, other), steps, rough=True)
    assert judged(plan)[0] == []


def test_plan_knows_that_the_lock_of_who_died_goes_to_who_waits() -> None:
    """Until it is known that nothing of the dead run is alive, the other one has come first."""
    one, other = (
        TaskPlan(name, "* * * * *", (Behaviour(70.0371),), lock="l") for name in ("b", "c")
    )
    crash = (Step(59.513, "crash"),)
    plan = Plan("2026-03-28T23:58:17Z", "UTC", (one, other), crash, rough=True)
    assert judged(plan)[0] == []


def test_plan_need_not_know_what_follows_when_a_run_has_succeeded() -> None:
    first = TaskPlan("a", "* * * * *", (Behaviour(70.0371, kind="thread"),))  # takes no time
    chained = TaskPlan("c", "", (Behaviour(70.0371),), after="a")
    steps = (Step(59.513, "nothing"),)
    plan = Plan("2026-03-28T23:58:17Z", "UTC", (first, chained), steps, rough=True)
    assert judged(plan)[0] == []


def test_plan_knows_what_starts_with_the_daemon_though_it_is_made_due_at_that_moment() -> None:
    """By a run that starts with the daemon, too, and takes no time."""
    asleep = TaskPlan("a", "0 0 * * *", (Behaviour(70.0371),), suspend=True)
    first, last = (
        TaskPlan(name, "", (Behaviour(70.0371, kind=kind),), after=after, on_start="daemon")
        for name, kind, after in (("b", "thread", "a"), ("c", "coroutine", "b"))
    )
    steps = (Step(59.513, "nothing"),)
    plan = Plan("2026-02-27T10:00:41Z", "UTC", (asleep, first, last), steps, rough=True)
    assert judged(plan)[0] == []


def test_a_log_may_tell_an_end_that_a_death_kept_from_becoming_durable() -> None:
    """Of a task that is not in the file any more: its run is found open at the next start."""
    task, other = (
        TaskPlan(name, "* * * * *", (Behaviour(seconds),))
        for name, seconds in (("a", 70.0371), ("c", 0.0371))
    )
    steps = (
        Step(59.513, "stop", task=task),
        Step(1.513, "leave out"),
        Step(1.513, "crash in a call", amount=4),
    )
    plan = Plan("2026-03-28T23:58:17Z", "UTC", (other,), steps, rough=True)
    told = [type(event).__name__ for event in lived(plan).log if getattr(event, "run_id", 0)]
    assert "TaskRunInterrupted" in told, "or nothing was lost"
    assert judged(plan)[0] == []


def test_a_log_may_lack_the_end_of_a_suspension_which_has_dropped_a_retry() -> None:
    """The process has died about when the suspension was to end."""
    task = TaskPlan("a", "* * * * *", (Behaviour(70.0371),), timeout=65)
    steps = (
        Step(30, "suspend"),
        Step(1_000, "suspend", amount=61),
        Step(59, "lost place", amount=0),
    )
    plan = Plan("2026-03-28T23:59:58Z", "UTC", (task,), steps, rough=True)
    assert judged(plan)[0] == []


# -- what is told of a failure ---------------------------------------------------------------------


def small() -> Plan:
    task = TaskPlan("a", "0,30 * * * *", (Behaviour(1.0371, fails=True),), retry_delay=45)
    return Plan(
        "2026-02-27T10:00:41Z",
        "UTC",
        (task,),
        (Step(4_000, "crash", amount=50), Step(7, "nothing")),
    )


def test_a_plan_is_one_word_on_a_command_line_and_the_same_again() -> None:
    assert plan_of(small().text()) == small()
    assert " " not in small().text()
    assert (
        told(small(), ["something"])
        .splitlines()[-1]
        .endswith(f"-m tests.simulation --replay {small().text()}")
    )


def test_the_same_plan_leads_to_the_same_life() -> None:
    assert judged(small()) == judged(small())


@pytest.mark.proof
def test_what_fails_is_brought_down_to_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    interruptions_are_forgotten(monkeypatch)
    found = explore(3, 300, rough=False)
    assert found.failure is not None
    again = plan_of(found.failure.split()[-1])
    assert judged(again)[0]
    assert len(again.tasks) == 1
    assert len(again.steps) <= 3
