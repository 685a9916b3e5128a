"""The judge: reads what was recorded, event by event, and says which promises were kept. Trusts
nothing it can compute.

It imports the model and the events only, never the code that decides (`owed`,
`machine`, `cron`, `zones`, `windows`): a judge that shares the code shares its bugs. Due instants
and retry instants are computed a second time (`ticks`), and at equal time they come before what is
done about them.

Of each event first the rules of its kind (`rules`) look at the facts as they were before it
(`facts`), then the facts take it in (`fold`). Some records are right only by what is written next,
at the same moment: what is wrong with such a one stays in doubt until then (`waiting`).

A record is read once, forwards. What cannot be decided is not called kept: an obligation still open
at the end is *inconclusive*, and a promise that was never put to the test had *no occasion*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, get_args

from cronpoll.audit import fold
from cronpoll.audit import promises as p
from cronpoll.audit.facts import MANY, UNRECORDED, Doubt, Facts, Task, text_of
from cronpoll.audit.promises import GUARANTEES, Guarantee
from cronpoll.audit.rules import ORDINARY, RULES, chains, clock
from cronpoll.audit.rules.finding import Found, Rule, Wrong
from cronpoll.audit.rules.life import could_stop
from cronpoll.audit.rules.timely import overdue, owes
from cronpoll.audit.rules.waiting import unexplained
from cronpoll.audit.ticks import ZoneNamed
from cronpoll.core import events as e
from cronpoll.core.model import Book, Trigger

_TOLD: Final = 1_000
"""Violations that are kept with their events; all are counted."""


class Violation(NamedTuple):
    """A promise that was broken: whose, when, how, and the events that show it. `place`: where in
    the record it was noticed, as whoever reads that says; None if at its end."""

    guarantee: Guarantee
    task: str | None
    at: datetime
    text: str
    events: tuple[e.Event, ...]
    place: str | None = None


class Obligation(NamedTuple):
    """Something that had to happen and had not yet, and could still happen in time, when the record
    ended."""

    guarantee: Guarantee
    task: str | None
    since: datetime
    text: str


class Verdict(NamedTuple):
    """What can be said of one promise."""

    guarantee: Guarantee
    verdict: Literal["kept", "violated", "inconclusive", "no occasion"]
    occasions: int
    violations: int
    open: int


class Report(NamedTuple):
    """The whole judgement. `notes`: what could not be judged, and why; `unjudged`: of which tasks.
    `started` due instants got a start, `left_out` others did not, for a reason that is recorded;
    `more`: not all of these were counted."""

    verdicts: list[Verdict]
    violations: list[Violation]
    open: list[Obligation]
    notes: list[str]
    events: int
    tasks: int
    first: datetime | None
    last: datetime | None
    begun: bool = False  # at a state, if not at an event
    started: int = 0
    left_out: int = 0
    more: bool = False
    unjudged: tuple[tuple[str, str], ...] = ()

    @property
    def clean(self) -> bool:
        return not any(verdict.violations for verdict in self.verdicts)


class _Row:
    """A rule, and how often it had no occasion to look."""

    __slots__ = ("idle", "look", "rare", "tests")

    def __init__(self, rule: Rule) -> None:
        self.look, self.tests, self.rare = rule
        self.idle = 0


class _Kind:
    """A kind of event: who looks at it, who takes it in, what it tells of the version that wrote
    it; and how many there were. `few`: who looks at an ordinary one."""

    __slots__ = ("effect", "few", "ordinary", "plain", "rows", "take", "times")

    def __init__(self, key: object, kind: type[e.Event]) -> None:
        self.rows = [_Row(rule) for rule in RULES.get(key, ())]
        self.few = [row for row in self.rows if not row.rare]
        self.ordinary = ORDINARY.get(key)
        self.plain = 0
        self.take = fold.OF_A_TASK.get(kind)
        self.effect = fold.EFFECTS.get(kind)
        self.times = 0


class Audit:
    """Reads a record. `zone_named`: the zones of the machine that wrote it; a `LookupError` for one
    that is not known.

    `durable`: the record is a journal, so what it does not hold did not happen. A log can name ends
    that were lost with the process. `place`: where the event stands that is looked at.
    """

    def __init__(
        self,
        zone_named: ZoneNamed,
        *,
        durable: bool = True,
        place: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._facts = Facts(zone_named, durable)
        self._place = place
        kinds = [*fold.OF_A_TASK, *fold.OF_ALL]
        self._kinds: dict[object, _Kind] = {kind: _Kind(kind, kind) for kind in kinds}
        starts = get_args(Trigger)
        self._starts = {trigger: _Kind(trigger, e.TaskRunStarted) for trigger in starts}
        self._start = self._kinds[e.TaskRunStarted]
        self._broken: Counter[Guarantee] = Counter()
        self._violations: list[Violation] = []

    # -- reading -----------------------------------------------------------------------------------

    def see_all(self, record: Iterable[Book | e.Event]) -> Audit:
        for item in record:
            self.see(item)
        return self

    def see(self, item: Book | e.Event) -> None:
        """Take the next item of the record in: an event, or the state where the record begins or
        events are missing.

        Both are such as a decoder gives them: what cannot be said at all does not get here.

        Every event comes through here, millions of them, and each call costs.
        """
        facts = self._facts
        kind = self._kinds.get(type(item))
        if kind is None and isinstance(item, Book):
            self._begin(item)
            return
        event: Any = item
        facts.events += 1
        facts.before, facts.last = facts.last, event.at
        if facts.first is None:
            fold.first(facts, event)
        if kind is None:
            return
        if kind.effect is not None:
            self._says_effects(kind.effect(event))
        if kind.take is None:
            self._of_all(event, kind)
            return
        if facts.unsettled or event.at < facts.high:
            self._settle_times(event)
            self._goes_forwards(event)
        else:
            if event.at - facts.high > UNRECORDED:
                facts.earlier = facts.high
            facts.high = event.at
        task = facts.tasks.get(event.task_name)
        if task is not None and task.maybe_asleep:
            task = fold.awake_or_aside(facts, task, event)
        if task is None and not isinstance(event, e.TaskAdded):
            self._of_nobody(event)
        else:
            self._of_a_task(task, event, kind)

    def _of_a_task(self, task: Any, event: Any, kind: _Kind) -> None:
        """`task`: None if it is new."""
        facts = self._facts
        if task is not None and (
            task.pending or task.doubts or task.owed_ended or task.passed_asleep
        ):
            self._resolve(task, event)
        take = kind.take
        assert take is not None
        if kind is self._start:
            kind = self._starts[event.trigger]
        kind.times += 1
        rows = kind.rows
        if kind.ordinary is not None and kind.ordinary(facts, task, event):
            kind.plain += 1
            rows = kind.few
        for row in rows:
            found = row.look(facts, task, event)
            if found:
                self._take_down(found, task, event)
            elif found is None:
                row.idle += 1
        take(facts, task, event)

    def _says_effects(self, written: bool | None) -> None:
        if written is not None:
            self._facts.effects = written
            self._facts.carries = self._facts.carries or written

    def _begin(self, book: Book) -> None:
        facts = self._facts
        known, began = facts.scheduler, facts.last
        fold.begin(facts, book)
        if began is not None and known not in ("", book.scheduler_identifier):
            text = "from here on it is the record of another scheduler"
            begun = e.InstanceStarted(began, book.scheduler_identifier, book.instance_id, "")
            self._violated(Wrong(p.WHOLE, text), None, begun)

    def _settle_times(self, event: Any) -> None:
        """Decide about a sleep, what was written late, and what was held up, now that the next
        event is here."""
        facts = self._facts
        if not facts.unsettled:
            return
        self._settle_sleep(event)
        self._settle_recovery(event)
        if facts.suspects and isinstance(event, e.SuspensionDetected):
            clock.slept_between(facts, event)
        if facts.suspects and not isinstance(event, e.StoreSlow):
            other = isinstance(event, fold.OTHER_READINGS)
            for suspect in [*facts.suspects]:
                if other or event.at > suspect.until or event.at > suspect.goes_on:
                    facts.suspects.remove(suspect)
                    self._violated(suspect.wrong, None, event)
        if facts.held_up:
            for wrong in clock.goes_on(facts, event):
                self._violated(wrong, None, event)
        for wrong in chains.nothing_left_out(facts, event) if facts.to_follow else ():
            self._violated(wrong, None, event)
        waiting = facts.suspects or facts.held_up or facts.to_follow
        facts.unsettled = facts.recovery is not None or bool(waiting)

    def _settle_sleep(self, event: Any) -> None:
        facts, slept = self._facts, self._facts.slept
        if slept is None:
            return
        together = isinstance(event, e.ClockStepped) and event.at == slept.at
        for wrong in clock.slept(facts, event if together else None, slept):
            self._violated(wrong, None, slept)
        fold.OF_ALL[type(slept)](facts, slept)
        facts.slept = None

    def _settle_recovery(self, event: Any) -> None:
        facts, recovery = self._facts, self._facts.recovery
        if recovery is None:
            return
        if isinstance(event, e.ClockStepped):
            for wrong in recovery.late if event.step_ms < 0 else ():
                self._violated(wrong, None, event)
            facts.held_up.clear()
            facts.recovery = None
        elif isinstance(event, fold.OTHER_READINGS) or event.at >= recovery.at:
            for wrong in (*recovery.wrong, *recovery.late):
                self._violated(wrong, None, event)
            facts.high = max(facts.high, recovery.at)
            facts.recovery = None

    def _goes_forwards(self, event: Any) -> None:
        facts = self._facts
        if event.at >= facts.high and facts.recovery is None:
            if event.at - facts.high > UNRECORDED:
                facts.earlier = facts.high
            facts.high = event.at
            return
        clock.backwards(facts, event)

    def _of_all(self, event: e.Event, kind: _Kind) -> None:
        facts = self._facts
        self._settle_times(event)
        if isinstance(event, e.SuspensionDetected):
            if event == facts.last_of_all:
                self._violated(Wrong(p.WHOLE, "recorded twice"), None, event)
            clock.slept_before_recovery(facts, event)
            facts.slept, facts.unsettled, facts.last_of_all = event, True, event
            return
        if isinstance(event, fold.OTHER_READINGS):
            facts.high = event.at
        elif isinstance(event, e.StoreRecovered):
            # In a log what was done with the same write may stand before it.
            if facts.durable:
                facts.recovery, facts.unsettled = clock.recovery_of(facts, event), True
        elif event.journaled and not isinstance(event, e.ClockStepped):
            self._goes_forwards(event)  # others are written at once, before what waits for a disk
        kind.times += 1
        if event == facts.last_of_all and event.journaled:
            self._violated(Wrong(p.WHOLE, "recorded twice"), None, event)
        facts.last_of_all = event
        for task in fold.ended_with(self._facts, event):
            self._resolve(task, event)
        for row in kind.rows:
            found = row.look(self._facts, None, event)
            if found:
                self._take_down(found, None, event)
            row.idle += found is None
        fold.OF_ALL[type(event)](self._facts, event)

    def _of_nobody(self, event: e.Event) -> None:
        if not fold.of_nobody(self._facts, event):
            ends = isinstance(event, fold.ENDS)
            guarantee = p.ENDS_FOLLOW_STARTS if ends else p.START_OWED
            self._violated(Wrong(guarantee, "of a task that was never registered"), None, event)

    def _resolve(self, task: Task, event: e.Event) -> None:
        """Decide about what waits for an explanation, and only then look at the event itself."""
        what = fold.resolved(self._facts, task, event)
        for wrong in unexplained(task, event, what):
            self._violated(wrong, task, event)
        fold.resolve(task, what)

    def _take_down(self, found: Found, task: Task | None, event: e.Event) -> None:
        for wrong in found:
            if not isinstance(wrong, Doubt):
                self._violated(wrong, task, event)
            elif task is not None:
                task.doubts.append(wrong)

    def _violated(self, wrong: Wrong, task: Task | None, event: e.Event) -> None:
        guarantee, text, whose, of = wrong
        self._broken[guarantee] += 1
        if len(self._violations) < _TOLD:
            task, event = of or task, whose or event
            name = task.name if task is not None else getattr(event, "task_name", None)
            before = () if task is None or task.last is None else (task.last,)
            shown = (*before, event)
            self._violations.append(
                Violation(guarantee, name, event.at, text, shown, self._place())
            )

    # -- the judgement -----------------------------------------------------------------------------

    def report(self) -> Report:
        """The judgement over what was read so far."""
        facts = self._facts
        found: list[Obligation] = []
        never: list[Violation] = []
        for task in facts.tasks.values():
            if facts.state == "running" and facts.stop_requested is None:
                _still_owed(facts, task, found, never)
            _in_doubt(facts, task, found, never)
        _still_open(facts, found, never)
        unjudged = tuple(_unjudged(facts))
        begun_at = facts.first or facts.active
        found += [Obligation(p.ACCOUNTED, name, begun_at, text) for name, text in unjudged]
        opened = Counter(obligation.guarantee for obligation in found)
        broken = self._broken + Counter(violation.guarantee for violation in never)
        tested: Counter[Guarantee] = Counter()
        for kind in (*self._kinds.values(), *self._starts.values()):
            for row in kind.rows:
                looked = kind.times - row.idle - kind.plain * row.rare
                for guarantee in row.tests:
                    tested[guarantee] += looked
        verdicts = [
            _verdict(one, max(tested[one], broken[one]), broken[one], opened[one])
            for one in GUARANTEES
        ]
        violations, notes = self._violations + never, list(facts.notes)
        started = sum(self._starts[trigger].times for trigger in ("due", "boot", "owed"))
        known = len({*facts.tasks, *facts.aside})
        seen = facts.events, known, facts.first, facts.last, facts.begun
        counted = started, facts.left_out, facts.more_left_out
        return Report(verdicts, violations, found, notes, *seen, *counted, unjudged)


def _unjudged(facts: Facts) -> Iterator[tuple[str, str]]:
    """Tasks of which something could not be judged, and why."""
    for task in facts.tasks.values():
        if task.ticks is None:
            yield task.name, f"its zone {task.config.zone} is not known here: due times not judged"
        elif len(task.handled) >= MANY:
            yield task.name, "too many periods of it were handled before an edit to judge each"
    yield from {**facts.missing, **facts.aside}.items()


def _verdict(guarantee: Guarantee, occasions: int, broken: int, still: int) -> Verdict:
    verdict: Literal["kept", "violated", "inconclusive", "no occasion"] = "no occasion"
    if broken:
        verdict = "violated"
    elif still:
        verdict = "inconclusive"
    elif occasions:
        verdict = "kept"
    return Verdict(guarantee, verdict, occasions, broken, still)


def _still_owed(facts: Facts, task: Task, found: list[Obligation], never: list[Violation]) -> None:
    """What a task owes at the end. If it was overdue by the last sign of life, that is a violation
    and not open."""
    now = facts.active
    late = overdue(facts, task, now)
    if late is not None and now - facts.could(task, now, late.since) > facts.patience:
        shown = () if task.last is None else (task.last,)
        text = f"{late.what} was never seen to, and the scheduler was alive {text_of(now)}"
        never.append(Violation(late.guarantee, task.name, late.since, text, shown))
        return
    owed = owes(facts, task, max(now, facts.last or now))
    if owed is not None:
        found.append(Obligation(owed.guarantee, task.name, owed.since, owed.what))


def _in_doubt(facts: Facts, task: Task, found: list[Obligation], never: list[Violation]) -> None:
    """What nothing has explained when the record ends. The explanation is of the same moment."""
    for event, guarantee, text, holds in task.doubts:
        if event.at == facts.last:
            if holds is None:
                found.append(Obligation(guarantee, task.name, event.at, "a record"))
        elif holds is None or not holds(task, task.config):
            before = () if task.last is None else (task.last,)
            never.append(Violation(guarantee, task.name, event.at, text, (*before, event)))


def _still_open(facts: Facts, found: list[Obligation], never: list[Violation]) -> None:
    """An initialize and a stop that have not ended."""
    began, requested, alive = facts.initializing, facts.stop_requested, facts.active
    if began is not None:
        late = alive - max(began.at, facts.free) > facts.patience
        if late and alive != facts.active_before and not facts.degraded:
            text = f"never ended, and the scheduler was alive {text_of(alive)}"
            never.append(Violation(p.INIT_ENDS, None, began.at, text, (began,)))
        else:
            found.append(Obligation(p.INIT_ENDS, None, began.at, "an initialize"))
    if requested is not None:
        last = facts.last or requested
        late = last - could_stop(facts, requested, last) > facts.patience
        known = not facts.began_blind  # or something that nobody knows of may be running
        if late and known and not facts.open and not facts.degraded:
            text = f"never ended, and the scheduler was alive {text_of(last)}"
            shown = (e.SchedulerStopRequested(requested),)
            never.append(Violation(p.STOP_ENDS, None, requested, text, shown))
        else:
            found.append(Obligation(p.STOP_ENDS, None, requested, "a stop"))
