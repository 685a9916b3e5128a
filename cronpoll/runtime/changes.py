"""What a new list of registrations comes to, worked out in pieces between which the loop does its
work.

A list of a hundred thousand takes seconds. So the configs of a list are prepared before its turn
comes, and for a running engine the answer, too: it is worked out ahead from the book as it is, what
happens meanwhile is overheard, and whom that concerns is looked at anew when the change is
answered. For all others it is as if the change had been made when the work on it began.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from cronpoll.core.model import Registration, TaskConfig
from cronpoll.core.reconcile import PIECE, Reconciled, amended, in_pieces
from cronpoll.core.steps import Now
from cronpoll.runtime.admission import Admission
from cronpoll.runtime.ledger import Ledger
from cronpoll.runtime.roster import Roster

_FORESEEN_SECONDS: Final = 3.0
"""How old an answer may be that was worked out ahead: its events bear the time at which that began.
"""

_INTERVAL_SECONDS: Final = 0.0005
"""Shorter than a piece of work, so that a thread has reason to ask."""


class Foreseen(NamedTuple):
    """What follows from a list of registrations, worked out ahead: at which time, who waited for a
    slot then, and to whom something has happened since."""

    outcome: Reconciled
    now: Now
    waiting: Collection[str]
    concerned: set[str | None]


class Prepared(NamedTuple):
    """What a list of registrations means where the host's zone is `host`: a config for each."""

    host: str
    wanted: list[tuple[str, TaskConfig]]
    foreseen: Foreseen | None = None


class Change(NamedTuple):
    """A request for other registrations, answered through its future."""

    registrations: Sequence[Registration]
    done: asyncio.Future[Reconciled]
    prepared: Prepared | None = None


class Answers:
    """Of one engine. Nothing is changed here."""

    def __init__(
        self, roster: Roster, ledger: Ledger, admission: Admission, now: Callable[[], Now]
    ) -> None:
        self._roster = roster
        self._ledger = ledger
        self._admission = admission
        self._now = now

    async def prepared(self, registrations: Sequence[Registration], host: str) -> Prepared:
        """The configs of many registrations.

        They follow from the registrations and the host's zone and from nothing that can change in
        between; whoever uses them asks whether the zone is still that one.
        """
        wanted: list[tuple[str, TaskConfig]] = []
        for number, registration in enumerate(registrations, 1):
            wanted.append((registration.name, self._roster.config_of(registration, host)))
            if number % PIECE == 0:
                await asyncio.sleep(0)
        return Prepared(host, wanted)

    async def foreseen(self, prepared: Prepared, concerned: set[str | None]) -> Prepared:
        """The same with the answer for a running engine, unless that takes too long, as it can with
        windows. `concerned`: to whom something happens from now on; it grows."""
        if prepared.host != self._host:
            return prepared
        now, waiting = self._now(), self._admission.waiting()
        with bulk_work(len(prepared.wanted)):
            pieces = self._reconciled(prepared, now)
            outcome = next(pieces)
            for outcome in pieces:  # noqa: B007  the last one is meant
                await asyncio.sleep(0)
                if self._now().elapsed - now.elapsed > _FORESEEN_SECONDS:
                    return prepared
        return prepared._replace(foreseen=Foreseen(outcome, now, waiting, concerned))

    async def to(
        self,
        registrations: Sequence[Registration],
        prepared: Prepared | None,
        now: Now,
        *,
        after_restart: bool = False,
        boot_id: str = "",
    ) -> Reconciled:
        """What the list comes to now: as foreseen and brought up to date, or worked out."""
        if prepared is None or prepared.host != self._host:
            prepared = await self.prepared(registrations, self._host)
        pieces = self._amended(prepared, now) or self._reconciled(
            prepared, now, after_restart=after_restart, boot_id=boot_id
        )
        outcome = next(pieces)
        for outcome in pieces:  # noqa: B007  the last one is meant
            await asyncio.sleep(0)
        return outcome

    @property
    def _host(self) -> str:
        return self._roster.calendar.zones.host.key

    def _reconciled(
        self, prepared: Prepared, now: Now, *, after_restart: bool = False, boot_id: str = ""
    ) -> Iterator[Reconciled]:
        return in_pieces(
            self._ledger.book,
            prepared.wanted,
            now,
            self._roster.calendar,
            after_restart=after_restart,
            waiting=self._admission.waiting(),
            boot_id=boot_id,
        )

    def _amended(self, prepared: Prepared, now: Now) -> Iterator[Reconciled] | None:
        """None if nothing was foreseen, or too much has happened since."""
        foreseen, waiting = prepared.foreseen, self._admission.waiting()
        if foreseen is None:
            return None
        then = foreseen.now
        by_both_clocks = now.elapsed - then.elapsed, (now.wall - then.wall).total_seconds()
        names: set[Any] = foreseen.concerned.union(waiting, foreseen.waiting)
        if (
            None in names
            or now.behind != then.behind
            or not all(0 <= age <= _FORESEEN_SECONDS for age in by_both_clocks)
        ):
            return None
        return amended(
            foreseen.outcome,
            names,
            self._ledger.book,
            prepared.wanted,
            now,
            self._roster.calendar,
            waiting,
        )


@contextmanager
def bulk_work(number: int) -> Iterator[None]:
    """While so many things are made or computed in one go.

    No garbage collection: all those objects are new, and none is garbage. And threads get their
    turn between two pieces, above all the one that writes the record of a start: the loop hands the
    interpreter over for a moment only and has it back before a thread has woken up, and a thread
    asks for it only when nobody else has had it for a whole interval.
    """
    if number < 1_000 or not gc.isenabled():
        yield
        return
    interval = sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(min(interval, _INTERVAL_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.enable()
