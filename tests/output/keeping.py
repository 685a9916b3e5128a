"""What the tests of this room share: a keeper on real files, and runs that print into it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cronpoll.core import events as e
from cronpoll.output.keeper import Handed, Keeper
from cronpoll.output.limits import Limits
from cronpoll.output.reading import Gap, Item, KeptRun, Line, OutputReader
from cronpoll.runtime.clock import SystemClock
from tests.tools.living import PATIENCE_SECONDS

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Room:
    """A state directory with a keeper."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.directory = directory
        self.events: list[e.Event] = []
        self.limits = Limits(**limits)
        self.reader = OutputReader(str(directory))
        self.keeper = self.another()
        self._number = 0

    def another(self, *names: str) -> Keeper:
        """As the next daemon has it."""
        self.keeper = Keeper(
            str(self.directory),
            SystemClock(),
            self.limits,
            names=lambda: names,
            tell=self.events.append,
        )
        return self.keeper

    def kill(self) -> None:
        """The daemon dies: its thread does nothing more."""
        thread = self.keeper._thread
        assert thread is not None
        self.keeper._turn = lambda: False  # type: ignore[method-assign]
        self.keeper._wake()
        thread.join(PATIENCE_SECONDS)
        self.another()

    def begin(self, task: str = "job", started_at: datetime | None = None) -> Handed:
        self._number += 1
        started_at = started_at or SystemClock().wall()
        return self.keeper.record(task, f"ab12-{self._number}", started_at, self.events.append)

    def start(
        self, script: str, task: str = "job", **options: Any
    ) -> tuple[subprocess.Popen[bytes], Handed]:
        handed = self.begin(task, **options)
        child = subprocess.Popen(
            ["sh", "-c", script], stdout=handed.stdout, stderr=handed.stderr, cwd=self.directory
        )
        handed.close()
        return child, handed

    def run(self, script: str, task: str = "job", **options: Any) -> tuple[str, ...]:
        """A run from start to end; the lines that the journal would get."""
        child, handed = self.start(script, task, **options)
        return self.over(child.wait(), handed)

    def over(self, status: int, handed: Handed) -> tuple[str, ...]:
        assert handed.recording is not None
        lines = self.keeper.drain(handed.recording, wanted=True).result(PATIENCE_SECONDS)
        self.keeper.close(handed.recording, failed=status != 0)
        return lines

    def settle(self) -> None:
        """Everything that is over is a file."""
        self.keeper.end(PATIENCE_SECONDS)

    def last(self, task: str = "job") -> KeptRun:
        run = self.reader.latest(task)
        assert run is not None
        return run

    def items(self, task: str = "job") -> list[Item]:
        return [*self.reader.lines(self.last(task))]

    def texts(self, task: str = "job") -> list[str]:
        return [f"{item.stream[3]} {item.text}" for item in self.items(task)]

    def texts_of(self, run: KeptRun) -> list[str]:
        return [item.text for item in self.reader.lines(run)]

    def files(self) -> list[str]:
        """Names of all files of runs, without what differs from run to run."""
        found = [*(self.directory / "output").glob("*.*"), *self.live()]
        return sorted(path.suffix for path in found)

    def live(self) -> list[Path]:
        return [*(self.directory / "output" / "live").iterdir()]

    def occupied(self) -> int:
        """Bytes on the disk."""
        found = 0
        for path in (self.directory / "output").rglob("*"):
            try:
                found += os.lstat(path).st_blocks * 512 if path.is_file() else 0
            except FileNotFoundError:
                continue
        return found

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline, f"never happened: {what}"
            time.sleep(0.01)
        return found


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def gaps(items: list[Item]) -> list[Gap]:
    return [item for item in items if isinstance(item, Gap)]


def lines(items: list[Item]) -> list[Line]:
    return [item for item in items if isinstance(item, Line)]
