"""What callbacks in this process print and log: line by line into the log, within bounds, and into
the files of their runs."""

from __future__ import annotations

import logging
import threading

from cronpoll.output.capturing import Capture
from cronpoll.output.feeding import LINE_LIMIT, Bounds
from cronpoll.output.keeper import Keeper
from cronpoll.output.names import Stream
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.observe import traceback_of
from cronpoll.runtime.runs import Run, RunFailedError


class Prints(Bounds):
    """What the callback of one run prints and logs in this process, from any thread."""

    def __init__(self, run: Run, clock: Clock, capture: Capture | None) -> None:
        super().__init__(run.task_name, run.run_id, run.tell, clock)
        self._run = run
        self._capture = capture
        self._lock = threading.RLock()  # a destructor may log in the midst of it

    def keep(self, stream: Stream, text: str) -> None:
        """As it was printed, whole lines or not."""
        if self._capture is not None:
            self._capture.write(stream, text)

    def lines(self, name: Stream, texts: list[str]) -> None:
        with self._lock:
            for number, text in enumerate(texts):
                if self.flooded():
                    left = texts[number:]
                    self.dropped(len(left), sum(map(len, left)))
                    return
                self.dropped(0, max(len(text) - LINE_LIMIT, 0))
                self.say(name, text[:LINE_LIMIT], len(text))

    def may_log(self, record: logging.LogRecord) -> bool:
        """Keep a record. Whether the log takes it, too. If not, it is counted as dropped."""
        self.keep("stderr", _line_of(record))
        with self._lock:
            if self.flooded():
                self.dropped(1, len(str(record.msg)))
                return False
            self.use()
            return True

    def finish(self, error: BaseException | None = None) -> None:
        """The run has ended, perhaps of an error."""
        with self._lock:
            super().finish()
        if self._capture is not None:
            if error is not None and self._run.cut is None:
                self._capture.write("stderr", traceback_of(error))
            self._capture.close(failed=error is not None or self._run.cut is not None)


def _line_of(record: logging.LogRecord) -> str:
    """As the standard library prints it where nobody has said how."""
    try:
        text = f"{record.levelname}:{record.name}:{record.getMessage()}\n"
    except Exception:  # its arguments are the callback's code, too
        text = f"{record.levelname}:{record.name}:{record.msg!r} (cannot be rendered)\n"
    if record.exc_info and record.exc_info[1] is not None:
        text += traceback_of(record.exc_info[1])
    return text


class Printing:
    """Who takes what runs print in this process. `keeper`: of their files; none before it is known
    where they are."""

    def __init__(self, clock: Clock) -> None:
        self.keeper: Keeper | None = None
        self._clock = clock
        self._making = threading.Lock()

    def of(self, run: Run) -> Prints:
        """What this run prints."""
        if not isinstance(run.printed, Prints):
            with self._making:
                if not isinstance(run.printed, Prints):
                    run.printed = Prints(run, self._clock, self._captured(run))
        return run.printed

    def of_failure(self, run: Run, error: BaseException) -> Prints | None:
        """For the traceback of a run that has printed nothing, if there is one to keep."""
        if run.cut is not None or isinstance(error, RunFailedError):
            return None
        return self.of(run)

    def _captured(self, run: Run) -> Capture | None:
        if self.keeper is None:
            return None
        return self.keeper.capture(run.task_name, run.run_id, run.started_at, run.tell)
