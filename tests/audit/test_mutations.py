"""Lies made by rule: the judge notices them, save those that no record can show. The list of events
and fields is the catalogue's: one that is new here has to be dealt with."""

from __future__ import annotations

import json

import pytest

from cronpoll.audit import fold
from tests.audit import mutations
from tests.audit.mutations import FLOORS, accepted, journaled, mutations_of, noticed_by, shares
from tests.audit.records import RECORDED, records

FAST = ("relaxed", "by_hand", "ordered", "survivors", "slow_disk")
"""Small records; with `-m proof` it is all of them."""


def test_every_event_of_a_journal_is_judged_or_believed_for_a_reason() -> None:
    known = {*fold.OF_A_TASK, *fold.OF_ALL}
    missing = [
        kind.__name__
        for kind in journaled()
        if kind not in known and any(accepted(one) is None for one in mutations_of(kind))
    ]
    advice = (
        "the judge does not know these events of the journal: write what each adds in "
        "audit/fold/ and a rule in audit/rules/, or say in BELIEVED of "
        "tests/audit/mutations.py why no record can show a lie about it"
    )
    assert missing == [], advice


def test_the_honest_records_show_every_event_of_a_journal() -> None:
    shown = {type(event) for record in records().values() for event in record}
    missing = [
        kind.__name__
        for kind in journaled()
        if kind not in shown and any(accepted(one) is None for one in mutations_of(kind))
    ]
    assert missing == [], "write a life in tests/audit/records.py in which these happen"
    assert len(records()) >= 20


@pytest.mark.parametrize("name", RECORDED)
def test_an_honest_record_is_accused_of_nothing(name: str) -> None:
    assert noticed_by(records()[name]) == set()


def test_lies_in_small_records_are_noticed() -> None:
    found = mutations.tried({name: records()[name] for name in FAST}, journaled())
    assert shares(found)["all"] >= 90


@pytest.mark.proof
def test_lies_are_noticed_and_not_fewer_than_before() -> None:
    """If something falls: `python -m tests.audit.mutations -v` prints what was believed. If it
    rises: `--write` raises the floors."""
    found = mutations.tried(records(), journaled())
    floors = json.loads(FLOORS.read_text())
    now = shares(found)
    print(now)
    assert {row: now[row] for row in floors if now[row] < floors[row]} == {}
    new = sorted(set(now) - set(floors))
    assert new == [], "new events: python -m tests.audit.mutations --write keeps their shares"
    assert now["all"] >= 97
