"""The simulation itself: some lives of every kind, and that it notices when the scheduler is broken on purpose.

Many more lives are in a command of their own: `python -m tests.simulation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from cronpoll.cli import ahead
from cronpoll.core import machine, model, owed, periods, reconcile, steps, windows
from cronpoll.runtime import clockwatch, engine, roster
from cronpoll.runtime.admission import Admission
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.lingering import Lingering
from cronpoll.runtime.simulated import SimulatedDisk
from cronpoll.runtime.survivors import Survivors
from tests.simulation import asked
from tests.simulation.explore import explore, judged, told
from tests.simulation.plan import Behaviour, Plan, Step, TaskPlan, plan_of

LIVES = 2_000 if os.environ.get("CRONPOLL_LONG") else 20


@pytest.mark.parametrize("rough", [False, True], ids=["predictable", "rough"])
def test_in_these_lives_every_promise_is_kept(rough: bool) -> None:
    found = explore(1, LIVES, rough=rough)
    assert found.failure is None, found.failure
    assert found.lives >= LIVES // 2


# -- broken on purpose -------------------------------------------------------------------------------------------------


def nothing_is_fsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "fsync", lambda disk, _: disk._called("fsync"))


def starts_come_before_their_record(patch: pytest.MonkeyPatch) -> None:
    original = engine.Engine._carry_out

    async def eager(self, batch):
        runs, batch.runs = batch.runs, []
        self._launch(runs)
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
        original(task, msgspec.structs.replace(event, settled_until=event.settled_until and settled))

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
        choice = periods.choose(*arguments)
        return choice._replace(chosen_at=choice.chosen_at and choice.chosen_at + timedelta(seconds=1))

    patch.setattr(windows, "_chosen", lambda name, spread, zone, nominal: late(name, spread, zone.tzinfo, nominal))


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
    original = windows.PeriodSchedule.in_order

    def alone(self, after):
        found = original(self, after)
        last = next(found, None)
        for each in found:
            if each[0] != last[0]:
                yield last
            last = each
        if last is not None:
            yield last

    patch.setattr(windows.PeriodSchedule, "in_order", alone)


def of_twins_the_first_is_started(patch: pytest.MonkeyPatch) -> None:
    original = windows.PeriodSchedule.periods_at
    patch.setattr(windows.PeriodSchedule, "periods_at", lambda *arguments: original(*arguments)[::-1])


def the_dead_are_buried_after_the_edit(patch: pytest.MonkeyPatch) -> None:
    original = reconcile._kept

    def late(task, config, now, calendar, waiting_since, restarted):
        events = original(task, config, now, calendar, waiting_since, None)
        return events if restarted is None else [*events, *steps.died(task, config, now.wall, restarted)]

    patch.setattr(reconcile, "_kept", late)


def the_dead_are_buried_by_the_old_rules(patch: pytest.MonkeyPatch) -> None:
    original = steps.died
    patch.setattr(steps, "died", lambda task, _, *others: original(task, task.config, *others))


def what_is_given_up_holds_no_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lingering, "hold", lambda *_: None)


def what_is_given_up_is_always_interrupted(patch: pytest.MonkeyPatch) -> None:
    original = steps.ended

    def careless(task, run_id, started_at, timers, end):
        return original(task, run_id, started_at, timers, end._replace(cut="stop") if end.given_up else end)

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
    original = ahead._first_start
    patch.setattr(
        ahead, "_first_start", lambda task, *others: original(msgspec.structs.replace(task, handled=()), *others)
    )


def a_plan_forgets_who_died(patch: pytest.MonkeyPatch) -> None:
    original = ahead.reconcile

    def careless(*arguments, after_restart):
        return original(*arguments, after_restart=False)

    patch.setattr(ahead, "reconcile", careless)


def something_is_lost_on_paper(patch: pytest.MonkeyPatch) -> None:
    original = asked.encode_events
    patch.setattr(asked, "encode_events", lambda events: original(events).replace(b'"settledUntil"', b'"settled"'))


SABOTAGE: list[tuple[Callable[[pytest.MonkeyPatch], None], bool]] = [
    (nothing_is_fsynced, True),
    (starts_come_before_their_record, True),
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
    (a_run_by_hand_is_none, False),
    (a_run_by_hand_settles_what_was_owed, False),
    (twins_are_forgotten, False),
    (of_twins_the_first_is_started, False),
    (the_dead_are_buried_after_the_edit, False),
    (the_dead_are_buried_by_the_old_rules, False),
    (what_is_given_up_holds_no_name, False),
    (what_is_given_up_is_always_interrupted, False),
    (what_a_stop_cuts_off_has_no_end, False),
    (catch_up_knows_the_latest_instant_alone, False),
    (a_plan_forgets_what_is_handled, False),
    (a_plan_forgets_who_died, False),
    (something_is_lost_on_paper, False),
]


@pytest.mark.proof
@pytest.mark.parametrize(("sabotage", "rough"), SABOTAGE, ids=[change.__name__ for change, _ in SABOTAGE])
def test_a_broken_scheduler_is_noticed(
    sabotage: Callable[[pytest.MonkeyPatch], None], rough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    try:
        found = explore(2, 1_000, rough=rough, shrink=False)
    except AssertionError:
        return  # a wall of the scheduler itself, or of the life it led
    assert found.failure is not None


# -- what is told of a failure -----------------------------------------------------------------------------------------


def small() -> Plan:
    task = TaskPlan("a", "0,30 * * * *", (Behaviour(1.0371, fails=True),), retry_delay=45)
    return Plan("2026-02-27T10:00:41Z", "UTC", (task,), (Step(4_000, "crash", amount=50), Step(7, "nothing")))


def test_a_plan_is_one_word_on_a_command_line_and_the_same_again() -> None:
    assert plan_of(small().text()) == small()
    assert " " not in small().text()
    assert told(small(), ["something"]).splitlines()[-1].endswith(f"-m tests.simulation --replay {small().text()}")


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
