"""A month of a small company, for `cronpoll demo`: the production scheduler lives through it in a
simulated world, with what goes wrong in a month, and then goes on in real time.

The same month every time. Its clock is put so that the month ends when the demo begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from cronpoll.config.check import Rules, check
from cronpoll.core.model import Operator, Registration
from cronpoll.core.zonenames import NamedZone
from cronpoll.daemon import wire
from cronpoll.daemon.control import ControlSocket
from cronpoll.daemon.requests import Requests
from cronpoll.daemon.versions import Settings, Versions
from cronpoll.output.keeper import Keeper
from cronpoll.runtime.clock import Clock, SystemClock
from cronpoll.runtime.hostzone import HostZone
from cronpoll.runtime.lifecycle import Lifecycle
from cronpoll.runtime.observe import Silence
from cronpoll.runtime.runs import RunFailedError, current_run
from cronpoll.runtime.simulation.time import run as in_simulated_time
from cronpoll.runtime.simulation.world import World
from cronpoll.store.journal.writer import Journal
from cronpoll.web.demoprints import AtOnce, Later, Printer, lines_of, used

ZONE: Final = NamedZone("Europe/Berlin", ZoneInfo("Europe/Berlin"))
BEGIN: Final = "2026-09-29T03:00:00Z"
END: Final = "2026-10-29T02:33:40Z"
"""Half past three in the night, in Berlin. On the 25th its clocks were put back."""
FILE: Final = "tasks.toml"

Work = Callable[[], Coroutine[Any, Any, None]]

_SECONDS: Final = {
    "nightly-backup": 358, "offsite-sync": 1_512, "backup-verify": 405, "wal-archive": 38,
    "payment-status": 2.5, "payout-export": 43, "invoices": 1_388, "invoice-reminders": 69,
    "datev-export": 18, "crm-sync": 246, "warehouse-sync": 415, "stock-feed": 21,
    "price-import": 290, "us-orders": 95, "search-reindex": 347, "ml-retrain": 3_000,
    "cache-warm-home": 47, "cache-warm-search": 75, "media-thumbs": 125, "newsletter": 318,
    "weekly-report": 93, "cert-renew": 6, "log-rotate": 2.8, "log-ship": 25, "gdpr-purge": 240,
}  # fmt: skip
"""How long a run of each task usually takes."""
_REFUSED: Final = (
    "backup 2.8.1: database shop on db1, target s3://fennel-backup/db1",
    "lock /run/backup/shop.lock taken",
    "pg_dump: error: query failed: server closed the connection unexpectedly",
    "connection lost, trying again in 5 s (1 of 3)",
    'pg_dump: error: connection to server at "db1" (10.0.4.11), port 5432 failed: timeout expired',
    "giving up; /srv/backup/shop.dump.part is left for inspection",
)
_FAILS: Final[dict[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]]] = {
    # of runs that begin between these: error, and what was printed
    "nightly-backup": (
        ("2026-10-08T00", "2026-10-08T03", "exited with code 1", ("backup: disk quota exceeded",)),
        ("2026-10-26T01", "2026-10-26T01:40", "exited with code 1", ("could not resolve db1",)),
        ("2026-10-29T00", "2026-10-30", "exited with code 1", _REFUSED),
    ),
    "backup-verify": (
        ("2026-10-20T03:30", "2026-10-20T03:34", "exited with code 2", ("checksum differs",)),
    ),
    "stock-feed": (("2026-10-28T15:20", "2026-10-28T15:22", "exited with code 7", ("HTTP 502",)),),
    "crm-sync": (("2026-10-28T16:20", "2026-10-28T16:22", "killed by SIGKILL", ()),),
    "log-ship": (("2026-10-28T21:40", "2026-10-28T21:41", "exited with code 1", ("EOF",)),),
    "payment-status": (
        ("2026-10-28T20:42", "2026-10-28T20:43", "exited with code 3", ("gateway: 503",)),
    ),
    "datev-export": (
        ("2026-10-12T04:30", "2026-10-12T04:34", "exited with code 1", ("no such client",)),
    ),
}
_HANGS: Final = {
    "crm-sync": ("2026-10-29T01:50", 5_400.0),
    "warehouse-sync": ("2026-10-16T09", 2e3),
}


def _unit(*of: object) -> float:
    """A number from 0 to 1 that looks like chance and is always the same."""
    digest = sha256("\n".join(map(str, of)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def work(clock: Clock, printer: Printer) -> Work:
    """What every task of the company does: take its time, and sometimes fail."""

    async def callback() -> None:
        run = current_run.get()
        assert run is not None, "the scheduler calls it"
        name, text = run.task_name, clock.wall().isoformat()
        seconds = _SECONDS[name] * (0.93 + 0.14 * _unit(name, text))
        hang = _HANGS.get(name)
        if hang is not None and text.startswith(hang[0]):
            seconds = hang[1]
        for first, last, error, output in _FAILS.get(name, ()):
            if first <= text < last:
                seconds *= 0.8
                await printer.during(run, seconds, lines_of(name, output), failed=True)
                run.exit = used(name, seconds, 1)
                raise RunFailedError("ExitCode", error, output)
        await printer.during(run, seconds, lines_of(name, None), failed=False)
        run.exit = used(name, seconds, 0)

    return callback


def registrations(file: str, clock: Clock, printer: Printer) -> list[Registration]:
    registry = check(file, clock.wall(), ZONE.tzinfo, Rules(imports=False))
    assert not registry.errors, "the file of the demo is valid"
    does = work(clock, printer)
    return [task.registration(does) for task in registry.tasks]


def prepare(directory: str) -> str:
    """Make a state directory with a month in it. Gives back the registry file."""
    file = os.path.join(directory, FILE)
    text = (resources.files("cronpoll.web") / "demo.toml").read_text()
    with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as out:
        out.write(text)
    state = os.path.join(directory, "state")
    os.mkdir(state, 0o700)
    printer = Later()
    world = in_simulated_time(lambda: _month(file, printer))
    printer.write(state)
    for path in world.disk.paths():
        if path.endswith(".journal"):
            with open(os.path.join(state, os.path.basename(path)), "xb") as out:
                out.write(world.disk.content(path))
    return file


async def _month(file: str, printer: Printer) -> World:
    world = World(BEGIN, every_minute=False, zone=ZONE.tzinfo, stop_timeout=timedelta(0))
    world.log.level = 100  # nobody reads it
    tasks = registrations(file, world.clock, printer)
    await _quiet_weeks(world, tasks)
    await _bad_night(world, tasks)
    return world


async def _quiet_weeks(world: World, tasks: list[Registration]) -> None:
    later = {"payment-status": "* * * * *", "gdpr-purge": ""}
    hourly = {"cache-warm-home": "0 * * * *", "log-ship": "0 * * * *", "stock-feed": "5 * * * *"}
    first = [
        replace(task, cron=hourly.get(task.name, task.cron))
        for task in tasks
        if task.name not in later
    ]
    await world.boot(first)
    await world.until("2026-10-13T08:12:00Z")
    told = "until the new template is there"
    await world.lifecycle.suspend("newsletter", None, told, Operator(1000, "mira"))
    await world.until("2026-10-15T16:20:00Z")
    await world.lifecycle.suspend("nightly-backup", None, "storage move", Operator(1001, "ada"))
    await world.until("2026-10-16T07:05:00Z")
    await world.lifecycle.resume("nightly-backup", Operator(1001, "ada"))
    await world.until("2026-10-21T13:00:00Z")
    await world.stop()
    await world.until("2026-10-21T13:06:00Z")
    await world.boot([replace(task, cron=task.cron) for task in first])
    await world.until("2026-10-26T15:05:00Z")
    await world.reload([task for task in tasks if task.name != "gdpr-purge"])
    await world.until("2026-10-28T16:05:00Z")
    await world.reload(tasks)


async def _bad_night(world: World, tasks: list[Registration]) -> None:
    """ml-retrain takes the daemon with it, again and again; once for 40 minutes."""
    deaths = (
        ("2026-10-28T23:03:10Z", "2026-10-28T23:03:12Z"),
        ("2026-10-28T23:09:30Z", "2026-10-28T23:09:31Z"),
        ("2026-10-28T23:14:50Z", "2026-10-28T23:14:51Z"),
        ("2026-10-28T23:22:14Z", "2026-10-29T00:02:20Z"),
        ("2026-10-29T00:24:05Z", "2026-10-29T00:24:06Z"),
        ("2026-10-29T01:33:05Z", "2026-10-29T01:33:06Z"),
    )
    for died, back in deaths:
        await world.until(died)
        await world.crash()
        await world.until(back)
        await world.boot(tasks)
    await world.until(END)
    await world.crash()


class DemoClock(SystemClock):
    """The machine's clock, put so that the demo begins when its month ends."""

    def __init__(self, begin: datetime | None = None) -> None:
        first = begin or datetime.fromisoformat(END) + timedelta(seconds=2)
        self._ahead = first - super().wall()

    def wall(self) -> datetime:
        return super().wall() + self._ahead


class DemoDaemon:
    """The scheduler of the demo, in this process, with a control socket like the daemon's."""

    def __init__(self, file: str, clock: Clock) -> None:
        self.state_directory = os.path.join(os.path.dirname(file), "state")
        self._file = file
        self._clock = clock
        self._keeper = Keeper(self.state_directory, clock)
        self._printer = AtOnce(self._keeper, clock)
        self._lifecycle = Lifecycle(
            Journal(self.state_directory),
            clock=clock,
            zone=ZONE.tzinfo,
            stop_timeout=timedelta(0),
            log=Silence(),
        )
        versions = Versions(Settings(file), clock, HostZone(), lambda _: None)
        requests = Requests(self._lifecycle, versions, Settings(file), clock, self._reload)
        self._control = ControlSocket(self.state_directory, requests.handlers(), clock, Silence())

    async def start(self) -> None:
        await self._lifecycle.initialize(self._registrations())
        await self._control.open()

    async def stop(self) -> None:
        self._control.close()
        await self._lifecycle.stop()
        self._keeper.end(1.0)

    def _registrations(self) -> list[Registration]:
        return registrations(self._file, self._clock, self._printer)

    async def _reload(self, _: bool) -> wire.Reloaded:
        tasks = self._registrations()
        await self._lifecycle.initialize(tasks)
        return wire.Reloaded(accepted=True, tasks=len(tasks))
