"""What people are told: a table of books and wishes, and what follows from them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from cronpoll.core import events as e
from cronpoll.core.machine import apply
from cronpoll.core.model import Book, TaskState
from cronpoll.core.notices import (
    OUTPUT_CHARACTERS,
    SHOWN,
    TEXT_CHARACTERS,
    Notice,
    Standing,
    Wish,
    messages,
    of_daemon,
    of_runs,
    of_task,
    tail,
)
from tests.tools.tables import at, task

OPS, BOTH = Wish(to=("ops",)), Wish(to=("ops", "ann"))
HOUR = timedelta(hours=1)


class Story:
    """A book in which things happen to `t`, and people are told what is to be told."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.book = Book("s")
        self.book.tasks["t"] = task()
        self.runs = 0

    @property
    def task(self) -> TaskState:
        return self.book.tasks["t"]

    def run(self, when: str, *, good: bool) -> None:
        self.runs += 1
        run, now = f"r{self.runs}", at(when)
        apply(self.book, e.TaskRunStarted(now, "t", now, now, run, "due"))
        apply(
            self.book,
            e.TaskRunCompleted(now, "t", 1.0, run, True)
            if good
            else e.TaskRunFailed(now, "t", 1.0, run, False, "boom", "E"),
        )

    def due(self, when: str, late: str | None = None) -> list[Notice]:
        return of_task(
            self.book, self.task, self.wish, at(when), None if late is None else at(late)
        )

    def tell(self, when: str, only: str | None = None, late: str | None = None) -> list[str]:
        """Have told what is to be told. In words: whom, what, how often before."""
        found = [each for each in self.due(when, late) if only in (None, each.target)]
        for each in found:
            told = (each.task, each.target, each.kind, each.subject, each.id, each.number)
            apply(self.book, e.NoticeTold(at(when), *told))
        return [f"{each.target} {each.kind} {each.number}" for each in found]


Act = tuple[str, Any]
STORIES: dict[str, tuple[Wish, list[tuple[str, str, list[str]]]]] = {
    "a failure is told once": (
        OPS,
        [("bad", "10:00", ["ops failed 0"]), ("bad", "10:10", []), ("", "20:00", [])],
    ),
    "its recovery, too": (
        OPS,
        [
            ("bad", "10:00", ["ops failed 0"]),
            ("good", "10:10", ["ops recovered 0"]),
            ("good", "10:20", []),
        ],
    ),
    "the next failure is another": (
        OPS,
        [
            ("bad", "10:00", ["ops failed 0"]),
            ("good", "10:10", ["ops recovered 0"]),
            ("bad", "10:20", ["ops failed 0"]),
        ],
    ),
    "no recovery of what was not told": (
        Wish(to=("ops",), after=2),
        [("bad", "10:00", []), ("good", "10:10", [])],
    ),
    "after three failures in a row": (
        Wish(to=("ops",), after=3),
        [
            ("bad", "10:00", []),
            ("bad", "10:10", []),
            ("good", "10:20", []),
            ("bad", "10:30", []),
            ("bad", "10:40", []),
            ("bad", "10:50", ["ops failed 0"]),
        ],
    ),
    "reminders, while it lasts": (
        Wish(to=("ops",), remind=HOUR),
        [
            ("bad", "10:00", ["ops failed 0"]),
            ("bad", "10:59", []),
            ("", "11:00", ["ops failed 1"]),
            ("", "11:59", []),
            ("bad", "12:00", ["ops failed 2"]),
            ("good", "12:10", ["ops recovered 0"]),
            ("", "14:00", []),
        ],
    ),
    "recoveries are not wanted": (
        Wish(to=("ops",), recovered=False),
        [
            ("bad", "10:00", ["ops failed 0"]),
            ("good", "10:10", []),
            ("bad", "10:20", ["ops failed 0"]),
        ],
    ),
    "everybody is told": (BOTH, [("bad", "10:00", ["ops failed 0", "ann failed 0"])]),
    "missed": (
        OPS,
        [("missed", "10:00", ["ops missed 0"]), ("", "10:10", []), ("good", "10:20", [])],
    ),
    "missed again": (
        OPS,
        [("missed", "10:00", ["ops missed 0"]), ("missed", "10:10", ["ops missed 0"])],
    ),
    "a later start stood for it": (OPS, [("made up", "10:00", [])]),
    "what is missed is not wanted": (
        Wish(to=("ops",), missed=False),
        [("missed", "10:00", []), ("bad", "10:10", ["ops failed 0"])],
    ),
    "nobody is told of a miss of long ago": (Wish(to=()), [("missed", "10:00", [])]),
    "quarantined": (
        OPS,
        [
            ("quarantined", "10:00", ["ops quarantined 0"]),
            ("", "10:10", []),
            ("good", "10:20", ["ops recovered 0"]),
        ],
    ),
    "overdue": (
        Wish(to=("ops",), overdue=HOUR),
        [
            ("late", "10:59", []),
            ("late", "11:00", ["ops overdue 0"]),
            ("late", "11:30", []),
            ("good", "11:40", ["ops recovered 0"]),
        ],
    ),
    "overdue is not asked for": (OPS, [("late", "18:00", [])]),
    "suspended": (OPS, [("suspended", "10:00", []), ("bad", "10:10", [])]),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_is_told(name: str) -> None:
    wish, acts = STORIES[name]
    story = Story(wish)
    for what, when, told in acts:
        now = at(when)
        if what in ("good", "bad"):
            story.run(when, good=what == "good")
        elif what in ("missed", "made up"):
            run = None if what == "missed" else "r9"
            apply(story.book, e.TaskMissed(now, "t", now, now, 1, "", run))
        elif what == "quarantined":
            apply(story.book, e.TaskQuarantined(now, "t", 3, at("12:00")))
        elif what == "suspended":
            apply(story.book, e.TaskSuspended(now, "t", "command"))
        late = "10:00" if what == "late" else None
        assert story.tell(when, late=late) == told, (what, when)


def test_who_was_not_told_of_the_trouble_is_not_told_of_its_end() -> None:
    story = Story(BOTH)
    story.run("10:00", good=False)
    assert story.tell("10:00", only="ops") == ["ops failed 0"]
    story.run("10:10", good=True)
    assert story.tell("10:10") == ["ops recovered 0"]
    assert story.task.trouble is None


def test_what_was_not_recorded_as_told_has_the_same_id_again() -> None:
    story = Story(replace(BOTH, remind=HOUR))
    story.run("10:00", good=False)
    first = story.due("10:00")
    story.run("10:10", good=False)
    assert [each.id for each in story.due("10:20")] == [each.id for each in first]
    story.tell("10:20")
    reminders = story.due("11:20")
    assert len({*(each.id for each in reminders), *(each.id for each in first)}) == 2


def test_trouble_of_the_daemon_is_told_once_and_so_is_its_end() -> None:
    book, rejected = Book("s"), Standing("rejected", at("10:00"), "the file is wrong")

    def tell(when: str, *standing: Standing) -> list[str]:
        found = of_daemon(book, standing, ("ops",), at(when))
        for each in found:
            told = (each.target, each.kind, each.subject, each.id, each.number)
            apply(book, e.NoticeTold(at(when), None, *told))
        return [f"{each.kind} {each.subject.partition(':')[0]}" for each in found]

    assert tell("10:00", rejected) == ["daemon rejected"]
    assert tell("10:01", rejected) == []
    full = Standing("degraded", at("10:02"), "the disk is full")
    assert tell("10:02", rejected, full) == ["daemon degraded"]
    assert tell("10:03", full) == ["recovered rejected"]
    assert tell("10:04", full, rejected._replace(since=at("10:04"))) == ["daemon rejected"]
    assert tell("10:05") == ["recovered degraded", "recovered rejected"]
    assert tell("10:06") == []
    assert book.told == ()


# -- messages --------------------------------------------------------------------------------------


def failures(number: int) -> list[Notice]:
    since, text = at("10:00"), "x" * 300
    return [
        Notice(f"i{n}", "failed", f"t{n}", "ops", "r", since, f"t{n} failed", text)
        for n in range(number)
    ]


def test_a_few_are_told_one_by_one() -> None:
    assert [sending.message.id for sending in messages(failures(3), 5)] == ["i0", "i1", "i2"]


def test_a_storm_is_one_digest_and_all_of_it_is_told() -> None:
    (sending,) = messages(failures(500), 5)
    assert sending.message.title == "cronpoll: 500 failed"
    assert len(sending.notices) == 500
    assert len(sending.message.notices) == SHOWN
    assert len(sending.message.text) <= TEXT_CHARACTERS + 10
    again = messages(failures(500)[::-1], 5)[0].message
    assert again.id == sending.message.id


def test_nothing_is_sent_without_room_or_reason() -> None:
    assert messages([], 5) == messages(failures(2), 0) == []


def test_of_what_a_run_printed_the_end_is_told() -> None:
    assert tail([f"{n}" for n in range(100)])[-2:] == ("98", "99")
    long = tail(["a" * OUTPUT_CHARACTERS, "b" * 10])
    assert long == ("b" * 10,)


def signs(story: Story, when: str) -> list[str]:
    """What the checks "hc" and "other" are to be told, and "hc" is told it."""
    found = of_runs(story.book, story.task, ("hc", "other"), at(when))
    for each in found:
        if each.target == "hc" and each.kind != "run-started":
            told = (each.task, each.target, each.kind, each.subject, each.id, each.number)
            apply(story.book, e.NoticeTold(at(when), *told))
    return [f"{each.target} {each.kind}" for each in found]


def test_a_check_is_told_of_every_end_once() -> None:
    story = Story(Wish())
    assert signs(story, "09:00") == []
    story.run("10:00", good=True)
    assert signs(story, "10:01") == ["hc run-succeeded", "other run-succeeded"]
    assert signs(story, "10:02") == ["other run-succeeded"]
    story.run("10:10", good=False)
    assert signs(story, "10:11") == ["hc run-failed", "other run-failed"]
    apply(story.book, e.TaskRunStarted(at("10:15"), "t", at("10:15"), at("10:15"), "r9", "due"))
    expected = ["hc run-started", "other run-failed", "other run-started"]
    assert signs(story, "10:16") == expected
    apply(story.book, e.TaskRunInterrupted(at("10:20"), "t", "r9", "stop", ended_at=at("10:20")))
    assert signs(story, "10:21") == []  # neither success nor failure
    story.run("10:30", good=True)
    assert signs(story, "03 10:30") == []  # a day later nobody wants to know
