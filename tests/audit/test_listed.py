"""What a judge once got wrong, thing by thing: each has a trace of its own, or a test where a trace
cannot show it. `test_guarantees` judges the traces; here it is looked up that none is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cronpoll.cli.auditing import sentence
from tests.audit import test_guarantees, test_independence
from tests.audit.test_guarantees import BAD, GOOD, TRACES, judged, read

FALSE_ALARMS = {
    "a record that begins with a state: the bound on parallel runs": (
        "test_a_record_that_begins_with_a_state_does_not_know_how_many_may_run_at_once",
        "overlap",
    ),
    "a record that begins with a state: surviving processes": (
        "test_nor_whether_a_child_that_holds_a_lock_is_still_alive",
        "survivors",
    ),
    "a record that begins with a state: what was open": (
        "test_so_is_its_journal_wherever_it_ends_and_what_retention_leaves_of_it",
        "deaths",
    ),
    "history in the first kept segment, before its state": (
        "test_history_from_before_the_first_state_accuses_nobody",
    ),
    "a directory with only a fresh state": ("test_a_state_and_nothing_more_is_clean",),
    "cron and window edited at once": ("both_edited",),
    "the clock set back while the daemon was down": ("set_back_while_down",),
    "a suspension over restarts by a clock that is years behind": ("asleep_by_a_wrong_clock",),
    "a chain, by a clock that is years behind since a restart": ("chained_by_a_wrong_clock",),
    "a chain that goes on while a stop waits for a run": ("chained_while_stopping",),
    "queue edited to allow during a long run": ("relaxed",),
    "a full disk and a pause of more than five seconds": ("full_and_asleep",),
    "a long sleep, and a full disk or another clock behind it": ("long_asleep",),
    "a record that begins with a state: a run that was told to end before an edit": (
        "test_a_state_does_not_say_whether_a_run_was_told_to_end_before_an_edit",
    ),
    "a log: an edit that was durable, and whose line died with the process": (
        "edit_without_its_line",
    ),
    "a log: an end that was not durable, of a task that is gone from the file": (
        "end_that_was_not_durable",
    ),
    "a log: an end that was not durable, beside another run that was open": (
        "end_beside_an_open_run",
    ),
    "a run during which the clock was set": ("run_over_a_clock_step",),
    "a lock that an edit takes away from its holder": ("lock_edited_away",),
    "a retry that is put off for thousands of years": (
        "test_a_retry_is_put_off_no_further_than_a_record_can_say",
    ),
    "a log that was rotated behind the suspension of a name that left and came back": (
        "left_out_asleep",
        "left_out_asleep_over_a_restart",
    ),
    "a run that was to be replaced when its name was left out": ("replaced_when_left_out",),
    "a log that was rotated at an unlucky line": (
        "test_nor_does_one_that_was_rotated_at_any_line",
        "test_a_log_that_begins_in_the_middle_accuses_nobody",
    ),
    "a log that was rotated between an instance and what its start owes": ("on_start",),
    "an edit that resets what a success has made due in the same minute": (
        "reset_in_the_minute_of_a_success",
    ),
    "an edit during a run, when what stays owed is of a clock that was ahead": (
        "edited_by_a_clock_that_was_ahead",
    ),
    "a log at level info": ("test_a_log_without_debug_lines_is_one_sentence",),
}
"""Honest records, and the good traces or tests that show them."""

BELIEVED = {
    "a missed start, forgiven for a sleep of six seconds": ("owed-started.forgiven-by-a-sleep",),
    "a missed start, forgiven for a clock step of a millisecond": (
        "owed-started.forgiven-by-a-step",
    ),
    "a missed start, forgiven for a disk that failed for a millisecond": (
        "owed-started.forgiven-by-a-disk",
    ),
    "a missed start, forgiven for an invented survivor": (
        "quiet-after-crash.forgiven-by-a-survivor",
    ),
    "a missed start, forgiven because the next run stands for it": (
        "owed-started.forgiven-by-the-next",
    ),
    "starts inside a recorded sleep": ("recorded-clock.started-asleep",),
    "starts on a sick disk": ("recorded-clock.started-on-a-sick-disk", "start-owed.sick-disk"),
    "clock steps that the neighbouring records disprove": ("recorded-clock.never-stepped",),
    "time that runs backwards": ("recorded-clock.backwards",),
    "time that runs ahead": ("recorded-clock.ahead",),
    "a registration later than its own starts": ("recorded-clock.registered-later",),
    "a start under forbid for a minute inside its own run": ("start-owed.inside-its-own-run",),
    "a run replaced without a start that replaces it": (
        "every-minute-accounted.replaced-by-nothing",
    ),
    "a zone other than the task's": ("start-owed.another-zone",),
    "a retry attributed to another period": ("start-owed.retry-of-another-period",),
    "a success after its timeout": ("ends-follow-starts.timeout",),
    "a start beside living survivors": ("no-overlap.survivor", "no-overlap.another-survivor"),
    "a negative duration": ("ends-follow-starts.negative",),
    "boot and due exchanged": ("start-owed.boot", "start-owed.boot-as-due"),
    "a doubled start after a wrong clock": (
        "outcomes-permanent.after-a-wrong-clock",
        "one-execution-per-period.old-wrong-clock",
    ),
    "a twin period without outcome": ("every-minute-accounted.twin",),
    "a period with two outcomes": ("outcomes-permanent.again",),
    "an overlap after a given-up run": ("quiet-after-stop.beside-a-given-up-run",),
    "another scheduler in the same directory": (
        "quiet-after-crash.another-scheduler",
        "record-whole.another-scheduler",
        "test_a_journal_is_of_one_scheduler",
    ),
    "an instance of another record": ("record-whole.instance",),
    "a gap in the numbers of the runs: a whole task removed": ("record-whole.gap",),
    "lines in a journal that are no events": (
        "test_records_of_a_journal_that_cannot_be_read_are_counted",
    ),
    "most starts of a task with windows removed, whatever its salt": (
        "owed-started.most-starts-removed",
    ),
    "three days settled by what stayed owed of a clock that was ahead": (
        "every-minute-accounted.settled-ahead",
    ),
    "giving up in silence": (
        "test_what_is_not_judged_is_said_of_each_task_and_is_not_called_kept",
        "test_events_that_are_missing_in_the_middle_are_said_of_each_task",
    ),
}
"""Lies that were believed, and the bad traces or tests that show them."""


@pytest.mark.parametrize(("table", "paths"), [(FALSE_ALARMS, GOOD), (BELIEVED, BAD)])
def test_everything_listed_has_its_trace(
    table: dict[str, tuple[str, ...]], paths: list[Path]
) -> None:
    known = {path.stem for path in paths} | {*vars(test_guarantees), *vars(test_independence)}
    assert {
        thing: name for thing, names in table.items() for name in names if name not in known
    } == {}


def test_a_log_that_lacks_what_was_registered_is_not_judged_from_there_on_and_says_so() -> None:
    report = judged(read(TRACES / "good" / "edit_without_its_line.jsonl"))
    assert report.violations == []
    assert [name for name, _ in report.unjudged] == ["moved", "stays"]
    assert all("the log lacks" in why for _, why in report.unjudged)
    assert sentence(report).startswith(
        "As far as it could be judged, every one of 3 due minutes of 2 "
    )
