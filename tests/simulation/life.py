"""Lives a plan on the production scheduler, and keeps what can be held against it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronpoll import Journal, Registration
from cronpoll.audit.judge import Audit, Report
from cronpoll.core import events as e
from cronpoll.core import reconcile
from cronpoll.core.errors import (
    CronpollError,
    ManualStartRefusedError,
    RegistrationError,
    StateDirectoryLostError,
    StopRunRefusedError,
    SuspensionRefusedError,
)
from cronpoll.runtime import changes, engine, ledger, observe, roster
from cronpoll.runtime.engine import Engine
from cronpoll.runtime.runs import current_run
from cronpoll.runtime.simulation.time import SimulatedLoop
from cronpoll.store.api import Position
from cronpoll.store.journal.reading import JournalReader
from cronpoll.testing import SimulatedCrashError, World, run
from tests.simulation.asked import (
    Foretelling,
    a_moment,
    asked,
    balanced,
    explained,
    folded_again,
    registration_of,
)
from tests.simulation.plan import (
    NAMES,
    ZONES,
    Behaviour,
    Plan,
    Step,
    TaskPlan,
    in_file,
    too_long_for_windows,
)
from tests.simulation.remembered import Gone, Start

HAIR = 0.0013
"""Steps happen ever so little after a whole second, a little more each time: the scheduler itself
acts on whole ones."""
CALM_SECONDS = 130
"""At the end, so that whatever is owed has been seen to."""
_DURABLE_TAIL = 1 << 16


class Lived(NamedTuple):
    """What is known of a life that is over."""

    broken: list[str]
    starts: list[Start]
    gone: list[Gone]
    days: float
    log: list[Any]
    occasions: Counter[str]


class SlowJournal(Journal):
    """A journal on a disk that takes its time."""

    seconds: Callable[[], float]

    async def append(self, batch: Sequence[e.Event], after: Position) -> Position:
        if seconds := self.seconds():
            await asyncio.sleep(seconds)
        return await super().append(batch, after)


class Life:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.zone = plan.zone
        self.tasks = {task.name: task for task in plan.tasks}
        self.registrations: dict[TaskPlan, Registration] = {}
        self.names: dict[str, str] = {}
        self.begun: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.broken: list[str] = []
        self.dying = False
        self.write_seconds = 0
        self.kept: dict[str, int] = {}  # how much of the journal, if not the usual
        self.placeless = False
        timeout = None if plan.stop_timeout is None else timedelta(seconds=plan.stop_timeout)
        self.world = World(
            plan.start,
            every_minute=plan.every_minute,
            children=plan.rough,
            zone=lambda: ZoneInfo(self.zone),
            max_concurrent=plan.max_concurrent,
            stop_timeout=timeout,
        )

    # -- what the scheduler is given ---------------------------------------------------------------

    def present(self) -> list[Registration]:
        return [self._registration(task) for task in in_file(self.tasks).values()]

    def _registration(self, task: TaskPlan) -> Registration:
        known = self.registrations.get(task)
        if known is None:
            known = self.registrations[task] = registration_of(task, self._callback(task))
        return known

    def _callback(self, task: TaskPlan) -> Any:
        # All of one kind: a scheduler sees from the function whether it is a coroutine's or a
        # thread's.
        if (
            task.behaviours[0].kind == "thread"
            and task.concurrency != "replace"
            and task.timeout is None
        ):

            def in_thread() -> None:
                with self._watched(task) as behaviour:
                    if behaviour.fails:
                        raise RuntimeError("as planned")

            return in_thread

        async def callback() -> None:
            with self._watched(task) as behaviour:
                match behaviour.kind:
                    case "process" | "deaf process":
                        deaf = behaviour.kind == "deaf process"
                        code = int(behaviour.fails)
                        await self.world.processes.command(
                            behaviour.seconds, code=code, stubborn=deaf
                        )()
                    case "stubborn":
                        await self._deaf_until(behaviour.seconds, patience=1)
                        await self._deaf_until(2.0171)
                    case "deaf":
                        await self._deaf_until(behaviour.seconds)
                    case _:
                        await asyncio.sleep(behaviour.seconds)
                if behaviour.fails:
                    raise RuntimeError("as planned")

        return callback

    async def _deaf_until(self, seconds: float, patience: int = 1_000) -> None:
        """Sleep, and do not hear that it should end, so many times. But who dies with the process,
        dies."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) >= 1e-6 and patience:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if self.dying:
                    raise
                patience -= 1

    @contextlib.contextmanager
    def _watched(self, task: TaskPlan) -> Iterator[Behaviour]:
        name, run = task.name, current_run.get()
        assert run is not None
        behaviour = task.behaviours[self.begun[name] % len(task.behaviours)]
        self.begun[name] += 1
        self.at_once[name] += 1
        alive = [
            run_id
            for run_id in self.world.processes._alive.values()
            if self.names.get(run_id) == name
        ]
        self.names[run.run_id] = name
        if (self.at_once[name] > 1 or alive) and task.concurrency != "allow":
            self.broken.append(
                f"{name} overlaps itself: {run.run_id} at {self.world.now}, beside "
                f"{alive or 'another'}"
            )
        if not self._durable(run.run_id):
            self.broken.append(
                f"{name} was called without a durable record: {run.run_id} at {self.world.now}"
            )
        try:
            yield behaviour
        finally:
            self.at_once[name] -= 1

    def _durable(self, run_id: str) -> bool:
        wanted = run_id.encode()
        files = self.world.disk._durable_names.values()
        return any(
            wanted in file.content[max(0, file.synced - _DURABLE_TAIL) : file.synced]
            for file in files
        )

    # -- the life ----------------------------------------------------------------------------------

    async def live(self) -> None:
        world = self.world
        self.outside = asyncio.all_tasks()
        await self.boot()
        for step in self.plan.steps:
            await asyncio.sleep(step.after + HAIR)
            if self.engine is None and not await self.revived():
                continue
            await self.do(step)
            await self.same_when_read()
        if self.plan.rough:
            world.disk.failures.clear()
            world.disk.capacity = world.disk.crash_at = None
        await asyncio.sleep(HAIR)
        if self.engine is None:
            assert await self.revived()
        await asyncio.sleep(CALM_SECONDS)
        await self.same_when_read()
        if not self.plan.rough:  # in a rough life things happen that nobody lives to write down
            assert self.engine is not None
            self.broken += folded_again(world.log.events, self.engine.book)
        self.ended_at = world.now

    @property
    def engine(self) -> Engine | None:
        """The engine, if it is alive."""
        scheduler = self.world._scheduler
        engine = None if scheduler is None else scheduler._lifecycle.engine
        return (
            None
            if engine is None or engine._loop_task is None or engine._loop_task.done()
            else engine
        )

    async def boot(self) -> None:
        """Start a scheduler. It may die of what was planned for its disk, or refuse to start with
        it: then there is none."""
        mark = len(self.world.log.events)
        foretelling = await self.ask_plan()
        try:
            store = SlowJournal("/state", disk=self.world.disk, **self.kept)
            store.seconds = lambda: self.write_seconds
            await self.world.boot(self.present(), store=store)
            await self.compare(foretelling, mark)
        except SimulatedCrashError:
            await self.crash()
        except CronpollError as error:
            if not self.plan.rough or isinstance(error, RegistrationError):
                raise

    async def revived(self) -> bool:
        """Start again what has died."""
        if self.world._scheduler is not None:
            await self.crash()
        await self.boot()
        return self.engine is not None

    async def reload(self) -> None:
        mark = len(self.world.log.events)
        foretelling = await self.ask_plan()
        try:
            await self.world.reload(self.present())
            await self.compare(foretelling, mark)
        except (CronpollError, SimulatedCrashError) as error:
            if not self.plan.rough or isinstance(error, RegistrationError):
                raise AssertionError(f"a change was refused: {error!r}") from error

    async def ask_plan(self) -> Foretelling | None:
        if (
            self.placeless
            or self.world.disk.crash_at is not None
            or self.world.disk.failures
            or self.world.disk.capacity is not None
        ):
            return None  # what will become of the reload is not the plan's business
        return await asked(
            self.world.disk,
            self.world.clock,
            self.zone,
            in_file(self.tasks).values(),
            self.engine,
            self.plan.max_concurrent,
        )

    async def compare(self, foretelling: Foretelling | None, mark: int) -> None:
        await a_moment()
        engine = self.engine
        if foretelling is not None and engine is not None:
            wrong = foretelling.compared(self.world.log.events[mark:], engine.held())
            self.broken += [] if wrong is None else [wrong]

    async def do(self, step: Step) -> None:
        world, amount = self.world, step.amount
        match step.deed:
            case "edit":
                self.edit_file(step)
                await self.reload()
            case "slow edit":
                await self.edit_slowly(step)
            case "leave out":
                self.tasks.pop(step.name, None)
                await self.reload()
            case "crash":
                await self.die(step)
            case "power loss":
                await self.die(step, power=True)
            case "deaths":
                for _ in range(amount):
                    await asyncio.sleep(61)
                    await self.die(Step(0, "crash"))
            case "stop":
                try:
                    await world.stop()
                except CronpollError:  # its last words could not be written
                    assert self.plan.rough
                await asyncio.sleep(amount)
                self.edit_file(step)
                await self.boot()
            case "crash in a call":
                world.disk.crash_at = len(world.disk.calls) + 1 + amount
                await self.some_time()
                world.disk.crash_at = None
                if self.engine is None:
                    await self.die(step, power=bool(step.more))
            case "crash between":
                now = world.now
                await asyncio.sleep(
                    (
                        now.replace(second=0, microsecond=0) + timedelta(minutes=1) - now
                    ).total_seconds()
                )
                for _ in range(amount):
                    await asyncio.sleep(0)
                await self.die(step, power=bool(step.more))
            case "set clock":
                world.clock.step(timedelta(seconds=amount))
                await self.poke()
            case "wrong clock":
                world.clock.in_step = step.in_step
                await self.shift_clock(amount, reboots=step.reboots)
                await asyncio.sleep(step.more + HAIR)
                await self.shift_clock(-amount, reboots=step.reboots)
            case "sleep":
                world.clock.suspend(timedelta(seconds=amount))
                await self.poke()
            case "move":
                self.zone = ZONES[amount]
                await self.reload()
            case "full disk":
                world.disk.capacity = world.disk.used() + step.more
                world.disk.failures["write"] = [errno.ENOSPC] * (amount - 1)
                await self.some_time()
                world.disk.capacity = None
                world.disk.failures.clear()
            case "sick disk":
                world.disk.failures["fsync"] = [errno.EIO] * amount
                await self.some_time()
                world.disk.failures.clear()
            case "slow disk":
                self.write_seconds = amount
                await self.some_time()
                self.write_seconds = 0
                await asyncio.sleep(amount + HAIR)  # for what is being written
            case "lost place":
                await self.lose_place(step)
            case "taken descriptors":
                world.disk.descriptors_are_taken(given_away=bool(amount))
                await self.some_time()
            case "no threads":
                loop = asyncio.get_running_loop()
                assert isinstance(loop, SimulatedLoop)
                loop.threads_refused = amount
                await self.some_time()
                loop.threads_refused = 0
            case "run" | "suspend" | "resume" | "stop run" | "at" | "cancel":
                await self.order(step)

    async def edit_slowly(self, step: Step) -> None:
        """Time passes while the change is worked out and made."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        await asyncio.sleep((60 - self.world.now.timestamp() - step.more / 1_000) % 60)
        self.edit_file(step)
        under_way = [loop.create_task(self.taken_over())]
        also = step.meanwhile
        for turn in count():
            if also is not None and turn == also.after:
                match also.deed:
                    case "edit":
                        self.edit_file(also)
                        under_way.append(loop.create_task(self.taken_over()))
                    case "give up":
                        under_way[0].cancel()
                        under_way.append(loop.create_task(self.taken_over()))
                    case "set clock":
                        self.world.clock.step(timedelta(seconds=also.amount))
                    case "sleep" if self.plan.every_minute:  # or nobody would notice
                        self.world.clock.suspend(timedelta(seconds=also.amount))
                    case "move":
                        self.zone = ZONES[also.amount]
                    case "sick disk":
                        self.world.disk.failures["fsync"] = [errno.EIO] * also.amount
                    case "slow disk":
                        self.write_seconds = also.amount
                    case "crash":
                        await self.die(also)
                    case _:
                        under_way.append(loop.create_task(self.order(also)))
            if all(task.done() for task in under_way):
                break
            assert turn < 100_000, "a change has no end"
            await asyncio.sleep(0)
            loop.leaping.elapsed += step.amount / 1_000
        self.world.disk.failures.clear()
        self.write_seconds = 0
        for task in under_way:
            with contextlib.suppress(asyncio.CancelledError):
                task.result()
        await a_moment()

    async def taken_over(self) -> None:
        with contextlib.suppress(CronpollError, SimulatedCrashError):
            await self.world.reload(self.present())

    async def lose_place(self, step: Step) -> None:
        """From then on not a byte is written; at the first that would be, the scheduler ends."""
        disk = self.world.disk
        disk.place_is_lost("/state", ("lock", "segment", "directory")[step.more])
        before = {path: disk.content(path) for path in disk.paths()}
        begun = sum(self.begun.values())
        log = logging.getLogger("cronpoll")
        self.placeless = log.disabled = True
        with contextlib.suppress(CronpollError):
            await self.some_time()
        self.placeless = log.disabled = False
        if {path: disk.content(path) for path in disk.paths()} != before:
            self.broken.append(f"it wrote where its place was lost, before {self.world.now}")
        if sum(self.begun.values()) != begun:
            self.broken.append(f"it started something without a place, before {self.world.now}")
        disk.place_is_back("/state")
        await self.die(step)

    async def shift_clock(self, seconds: int, *, reboots: bool) -> None:
        if reboots:
            await self.crash()
        self.world.clock.step(timedelta(seconds=seconds))
        if reboots:
            await self.boot()
        elif self.engine is not None:
            await self.poke()

    async def some_time(self) -> None:
        """In which what was planned for the disk meets a start, a reload and an end."""
        await asyncio.sleep(61.0371)
        if self.engine is not None:
            await self.reload()
        await asyncio.sleep(10.0371)

    async def poke(self) -> None:
        """A rough life lets the scheduler find out by itself. The model wants to know when."""
        if not self.plan.rough:
            await self.reload()

    async def order(self, step: Step) -> None:
        world = self.world
        refused = (ManualStartRefusedError, SuspensionRefusedError, StopRunRefusedError)
        with contextlib.suppress(*refused):
            match step.deed:
                case "run":
                    await world.run_now(step.name)
                case "suspend":
                    lasting = timedelta(seconds=step.amount) if step.amount else None
                    await world.suspend(step.name, lasting)
                case "resume":
                    await world.resume(step.name)
                case "stop run":
                    await world.stop_run(step.name)
                case "at":
                    await world.start_at(step.name, ahead(world.now, step))
                case "cancel":
                    engine = self.engine
                    task = None if engine is None else engine.book.tasks.get(step.name)
                    if task is not None and task.ordered:
                        await world.cancel_start(step.name, task.ordered[0].due_at)

    async def crash(self) -> None:
        """With the process everything in it ends, also what an earlier stop in it gave up."""
        self.world._others = {task for task in self.world._others if task in self.outside}
        self.dying = True
        await self.world.crash()
        self.dying = False

    async def die(self, step: Step, *, power: bool = False) -> None:
        world = self.world
        await self.crash()
        if power:
            world.disk.power_fails(keep=step.more, zeros=step.more % 7)
            world.processes._alive.clear()
            world.clock.boots += 1
        await asyncio.sleep(step.amount)
        self.edit_file(step)
        await self.boot()

    def edit_file(self, step: Step) -> None:
        if step.task is not None:
            self.tasks[step.name] = step.task
        elif step.left_out:
            self.tasks.pop(step.name, None)

    # -- what has to hold --------------------------------------------------------------------------

    async def same_when_read(self) -> None:
        """What is in memory is what the journal gives, once everything is written."""
        engine = self.engine
        if engine is None:
            return
        for _ in range(150):  # a failing disk is tried again every few seconds
            # That a write was slow is written with the next one, or it would never end.
            backlog = [one for one in engine.ledger._backlog if not isinstance(one, e.StoreSlow)]
            if not (engine.ledger.degraded or backlog or engine.underway.ended or engine._notes):
                break
            await asyncio.sleep(0.1 if self.plan.rough else 0)
        else:
            self.broken.append(
                "what has happened is not written down, and nothing is in the way, at "
                f"{self.world.now}"
            )
            return
        if self.engine is None:
            return
        read = await Journal("/state", disk=self.world.disk.fork()).open(self.world.now)
        if read.book != engine.book:
            self.broken.append(f"the journal does not give what is in memory, at {self.world.now}")

    def started_twice(self) -> Iterator[str]:
        """Due instants and periods with more than one start, further attempts apart."""
        seen: set[tuple[str, str, datetime | None]] = set()
        for event in self.world.events("TaskRunStarted"):
            if event.trigger not in ("due", "boot", "owed"):
                continue
            served = {(event.task_name, "due", event.due_at)}
            if event.period is not None:
                served.add((event.task_name, "period", event.period))
            for name, kind, moment in served & seen:
                yield f"{name}: a second start for the {kind} {moment}, at {event.at}"
            seen |= served

    def judged(self) -> Iterator[str]:
        self.occasions = Counter[str]()
        yield from self.started_twice()
        record = self._journal()
        if not too_long_for_windows(self.plan):
            yield from islice(explained(record, NAMES, self.ended_at, self.zone), 5)
        yield from islice(balanced(record, NAMES, self.ended_at, self.zone), 5)
        journal = Audit(ZoneInfo).see_all(record).report()
        for name, report in (("journal", journal), ("log", self._audit_of_log())):
            self.occasions.update(
                {verdict.guarantee.name: verdict.occasions for verdict in report.verdicts}
            )
            for violation in report.violations[:5]:
                yield (
                    f"{name}: {violation.guarantee.name}: {violation.task}: {violation.text} "
                    f"({violation.at})"
                )

    def _journal(self) -> list[Any]:
        return list(JournalReader("/state", disk=self.world.disk.from_outside()).history())

    def _audit_of_log(self) -> Report:
        return Audit(ZoneInfo, durable=False).see_all(self.world.log.events).report()


def unless_planned(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    planned = (SimulatedCrashError, StateDirectoryLostError)
    if not isinstance(context.get("exception"), planned):
        loop.default_exception_handler(context)


@contextlib.contextmanager
def pieces(names: int) -> Iterator[None]:
    """So many names are computed with in one go."""
    rooms: tuple[Any, ...] = (reconcile, engine, changes, observe, ledger, roster)
    before = reconcile.PIECE
    for room in rooms:
        room.PIECE = names
    try:
        yield
    finally:
        for room in rooms:
            room.PIECE = before


def lived(plan: Plan) -> Lived:
    """Live a plan, and judge it."""
    with pieces(1 if plan.large else reconcile.PIECE):
        return _lived(plan)


def _lived(plan: Plan) -> Lived:
    life = Life(plan)
    elapsed = 0.0

    async def main() -> None:
        nonlocal elapsed
        asyncio.get_running_loop().set_exception_handler(unless_planned)
        await life.live()
        elapsed = life.world.clock.monotonic()
        life.dying = True

    run(main)
    events = life.world.log.events
    broken = [*life.broken, *life.judged()]
    return Lived(broken, *told_by(events), elapsed / 86_400, events, life.occasions)


def ahead(now: datetime, step: Step) -> datetime:
    """The whole second for which a start is ordered."""
    return now.replace(microsecond=0) + timedelta(seconds=step.amount)


def told_by(events: list[Any]) -> tuple[list[Start], list[Gone]]:
    """What a log says about starts, and about due instants that got none."""
    starts: list[Start] = []
    gone: list[Gone] = []
    for event in events:
        match event:
            case e.TaskRunStarted():
                why = "due" if event.trigger == "boot" else event.trigger
                starts.append(
                    Start(event.task_name, why, event.due_at, event.started_at, event.period)
                )
            case e.TaskMissed():
                gone.append(
                    Gone(event.task_name, "missed", event.last_missed, event.count, event.at)
                )
            case e.TaskSkipped():
                gone.append(Gone(event.task_name, "skipped", event.due_at, event.count, event.at))
            case e.TaskResumed() if event.last_passed is not None:
                gone.append(
                    Gone(event.task_name, "resumed", event.last_passed, event.count, event.at)
                )
    return starts, gone
