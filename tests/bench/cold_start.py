"""What `cronpoll status` on 1,000 tasks costs before a person sees it, against the least that any
such command has to load.

Processor time of a whole process (it waits for nothing, and what others do does not count), the daemon not running, no output to a terminal; the peer is `python
-c "import click"` of the same interpreter. They take turns. Both find their byte code compiled, as
after an installation: it is kept in a directory of its own, whatever the environment says about
writing it, and a first call of each that fills it is not counted.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from resource import RUSAGE_CHILDREN, getrusage

from cronpoll import Scheduler, Silence
from tests.bench.measure import ROOT, Row, take_turns
from tests.bench.workload import mix, registrations

BOUND = 2.0
SCRIPT = "import sys; from cronpoll.cli.main import main; sys.exit(main())"
"""What the installed command does."""


async def callback() -> None:
    pass


def run(smoke: bool) -> list[Row]:
    size = 100 if smoke else 1_000
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_registered(directory, size))
        sides = {
            "cronpoll status": [sys.executable, "-c", SCRIPT, "status", "--state-dir", directory],
            "import click": [sys.executable, "-c", "import click"],
        }
        environment = {
            key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
        }
        environment["PYTHONPYCACHEPREFIX"] = os.path.join(directory, "compiled")
        commands = {
            name: lambda command=command: _milliseconds(command, environment)
            for name, command in sides.items()
        }
        for command in commands.values():
            command()
        row = Row(
            "cold_start",
            f"status of {size:,} tasks",
            "ms",
            take_turns(3 if smoke else 15, commands),
        )
    row.ratio("cronpoll status", "import click", BOUND, at_least=False)
    return [row]


async def _registered(directory: str, size: int) -> None:
    scheduler = Scheduler(directory, log=Silence())
    await scheduler.initialize(registrations(size, mix(), callback))
    await scheduler.stop()


def _milliseconds(command: list[str], environment: dict[str, str]) -> float:
    before = _used()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (_used() - before) * 1_000


def _used() -> float:
    """By children that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
