"""A real cronpolld for tests: started as a process, heard through its log, waited for by what it
says.

Nothing here sleeps for a length of time and hopes. `wait_for` returns when an event has been
logged, or fails with the whole log when it was not within a bound that is only there so that a
broken test ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 180.0


class Living:
    """A cronpolld in a directory of its own: tasks.toml, state/, and its log as events."""

    def __init__(
        self, directory: Path, tasks: str | None = None, *, state: Path | None = None
    ) -> None:
        self.directory = directory
        self.config = directory / "tasks.toml"
        self.state = state or directory / "state"
        self.log: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._began = 0
        self._news = threading.Condition()
        self._reader: threading.Thread | None = None
        if tasks is not None:
            self.write(tasks)

    # -- before ------------------------------------------------------------------------------------

    def write(self, tasks: str) -> None:
        """Replace the registry file, as an editor does."""
        temporary = self.config.with_suffix(".new")
        temporary.write_text(tasks)
        os.replace(temporary, self.config)

    def module(self, name: str, source: str) -> None:
        (self.directory / f"{name}.py").write_text(source)

    # -- life --------------------------------------------------------------------------------------

    def start(
        self,
        *arguments: str,
        clock: str | None = None,
        prefix: tuple[str, ...] = (),
        threads_share_clock: bool = False,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> Living:
        """Start it. `clock`: what libfaketime shall make of time, such as "@2026-11-01 01:58:30
        x30".

        `threads_share_clock`: for a clock that is read from a file while threads are about. Without
        the lock that this means, they are told the real time every now and then.
        """
        command = [*prefix, sys.executable, "-m", "cronpoll.daemon", "--config", str(self.config)]
        command += ["--state-dir", str(self.state), "--log-level", "debug", *arguments]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        if clock is not None:
            # A child that reset its clock would live in another time than its daemon.
            surroundings["FAKETIME_DONT_RESET"] = "1"
            command = ["faketime", *(["-m"] if threads_share_clock else []), "-f", clock, *command]
            _sweep_after_faketime()
        self._close_pipes()
        self._began = len(self.log)
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=surroundings,
            cwd="/",
            **options,
        )
        self._reader = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self._reader.start()
        return self

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._news:
                self.raw.append(line)
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.log.append({"event": "NotJson", "text": line})
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def up(self, *arguments: str, **options: Any) -> Living:
        """Start it and wait until it says that it has."""
        mark = len(self.log)
        self.start(*arguments, **options)
        self.wait_for("DaemonStarted", since=mark)
        return self

    def following(self, *arguments: str, **options: Any) -> Living:
        """Start it and wait until the file system tells it of changes: from then on it need not
        look by itself."""
        self.up(*arguments, **options)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_told_of_changes():
            assert time.monotonic() < deadline, "it does not watch anything"
            time.sleep(0.02)
        return self

    def _is_told_of_changes(self) -> bool:
        for entry in glob(f"/proc/{self.pid}/fdinfo/*"):
            try:
                if "inotify wd" in Path(entry).read_text():
                    return True
            except OSError:  # closed meanwhile
                pass
        return False

    def wait_for(
        self, event: str, *, count: int = 1, since: int = 0, **fields: Any
    ) -> dict[str, Any]:
        """The `count`-th event of that name with these fields, once it has been logged."""

        def found() -> list[dict[str, Any]]:
            return self.events(event, since=since, **fields)

        with self._news:
            ended = not self._news.wait_for(
                lambda: len(found()) >= count or not (self._reader and self._reader.is_alive()),
                PATIENCE_SECONDS,
            )
            matching = found()
        assert len(matching) >= count, (
            f"{event} {fields} was not logged {count} times "
            f"({'too late' if ended else 'the daemon has ended'}):\n" + "".join(self.raw)
        )
        return matching[count - 1]

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, looking whenever a line is logged; for that time at the
        longest. Whether it does."""
        with self._news:
            self._news.wait_for(
                lambda: condition() or not (self._reader and self._reader.is_alive()), seconds
            )
            return condition()

    def events(self, *names: str, since: int = 0, **fields: Any) -> list[dict[str, Any]]:
        return [
            event
            for event in self.log[since:]
            if event["event"] in names
            and all(event.get(key) == value for key, value in fields.items())
        ]

    @property
    def pid(self) -> int:
        """Of the daemon itself, as it says: a prefix such as faketime may be its parent."""
        return int(self.events("DaemonStarted")[-1]["pid"])

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait for its end. The exit code."""
        assert self.process is not None
        code = self.process.wait(PATIENCE_SECONDS)
        assert self._reader is not None
        self._reader.join(PATIENCE_SECONDS)
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """As a crash would: no warning, no last words."""
        self.signal(signal.SIGKILL)
        self.ended()

    def command(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the command `cronpoll` beside it."""
        return subprocess.run(
            [sys.executable, "-m", "cronpoll", *arguments],
            capture_output=True,
            text=True,
            check=check,
            timeout=PATIENCE_SECONDS,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            # A wrapper ends by itself when the daemon is gone, and tidies up.
            started = bool(self.events("DaemonStarted", since=self._began))
            try:
                os.kill(self.pid if started else self.process.pid, signal.SIGKILL)
                self.process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait(PATIENCE_SECONDS)
        if self._reader is not None:
            self._reader.join(PATIENCE_SECONDS)
        self._close_pipes()

    def _close_pipes(self) -> None:
        """Of the process before, if there was one: it has ended."""
        if self.process is not None:
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()


def _sweep_after_faketime() -> None:
    """Remove what killed ones have left in /dev/shm, by process id: a later one of the same id
    could not start."""
    for path in Path("/dev/shm").glob("*faketime_s*_*"):
        if not Path("/proc", path.name.rpartition("_")[2]).exists():
            path.unlink(missing_ok=True)


def faketime_there() -> bool:
    return shutil.which("faketime") is not None
