"""The keeper: one thread that follows the output of all runs, outside the loop, and what is kept of
the past.

It waits for the kernel's word that something was written, looks, and then lets a moment pass, so
that a run that prints all the time costs little. It never waits for a run. Whoever starts or ends
a run leaves a note and wakes it.

It writes nothing that has to be durable. After a crash the next keeper finds the files of runs
that were not over: it goes on with those that somebody still writes to, and finishes the others.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from math import inf
from typing import Final, NamedTuple

from cronpoll.core import events as e
from cronpoll.core.errors import abbreviate
from cronpoll.files import identity
from cronpoll.output import disk
from cronpoll.output.capturing import Capture
from cronpoll.output.feeding import Clock, Feed, Mute, Tell
from cronpoll.output.finishing import TEMPORARY, finish, remove_live
from cronpoll.output.limits import DEFAULT_LIMITS, Limits, occupied
from cronpoll.output.names import (
    INDEX,
    RAW,
    STREAMS,
    Label,
    Place,
    Stream,
    digest_of,
    label_of,
    parsed,
)
from cronpoll.output.reading import ITS_END, index_of, last_lines, live_blocks
from cronpoll.output.recording import Recording
from cronpoll.output.records import Header
from cronpoll.output.spares import Spares

TAIL_LINES: Final = 20
TAIL_LINE_LIMIT: Final = 400
"""What is kept with a failed run in the journal: so many lines of each stream, of so many
characters."""
LINGERING_LIMIT: Final = 64
"""Runs that are over and whose files a process in the background still holds: so many are read
on."""
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
"""Between two looks at runs that print all the time."""
_FLOOD_PAUSE: Final = 0.02
_TURN_SECONDS: Final = 0.02
"""From one turn to the next: many runs that end in a moment are seen to together, and the thread
does not fight for the interpreter with what starts others."""
_POLL_PAUSE: Final = 0.2
"""Where the kernel does not say what was written."""
_LINGERING_SECONDS: Final = 2.0
_TIDY_SECONDS: Final = 3_600.0
_DRAIN_LOOKS: Final = 8
_FINISHES: Final = 16
"""Before one looks again who else wants something."""
_REST_SECONDS: Final = 0.25
_MOST_CLOSING: Final = 1_000
_ROOM: Final = 0.9
"""Of the total, what is left when space is short."""
_NOT_OURS: Final = "the state directory was removed or replaced"
_STREAM_OF: Final[dict[str, Stream]] = {kind: stream for stream, kind in RAW.items()}


class Handed(NamedTuple):
    """What a child gets: two descriptors, and what is recorded of what it writes there; None if
    that cannot be kept. The descriptors are the caller's to close."""

    stdout: int
    stderr: int
    recording: Recording | None

    def close(self) -> None:
        for handle in (self.stdout, self.stderr):
            os.close(handle)


class Keeper:
    """The output of the runs of one daemon.

    `names`: tasks that are known, for files that do not say whose they are. `tell`: takes what
    runs of an earlier daemon still print. `held`: whether the state directory is still the
    daemon's, asked from any thread. While it is not, nothing there is written or removed: it may
    belong to another daemon by now. `open_runs`: those that an earlier daemon has not seen to their
    end, as the record says; None if it is not known. What the others have printed is in the log.
    """

    def __init__(
        self,
        state_directory: str,
        clock: Clock,
        limits: Limits = DEFAULT_LIMITS,
        *,
        names: Callable[[], Iterable[str]] = tuple,
        tell: Tell = lambda _: None,
    ) -> None:
        self.held: Callable[[], bool] = lambda: True
        self.open_runs: Collection[str] | None = None
        self._place = Place(state_directory)
        self._clock = clock
        self._limits = limits
        self._names = names
        self._tell = tell
        self._lock = threading.Lock()
        self._notes: deque[Callable[[], None]] = deque()
        self._ours: set[str] = set()
        self._left: list[str] = []
        self._thread: threading.Thread | None = None
        self._ending = False
        self._identity: object = None
        self._prepared_at = -inf
        self._wake_reading = self._wake_writing = -1
        # Of the thread.
        self._may_write = True
        self._writes: disk.Writes | None = None
        self._spares = Spares(self._place)
        self._active: dict[str, Recording] = {}
        self._orders: dict[str, list[Stream]] = {}
        self._printed: dict[int, Capture] = {}
        self._closing: deque[Recording] = deque()
        self._total = 0
        self._pause = _SHORTEST_PAUSE
        self._recorded_at = self._looked_at = self._pause_until = self._tidy_at = (
            self._lingering_at
        ) = self._turned_at = 0.0

    # -- from any thread ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to follow; only while the state directory is ours. Again and again is once."""
        with self._lock:
            if self._thread is not None:
                self._restore()
                return
            if not self.held():
                raise OSError(0, _NOT_OURS)
            self._make_directories()
            self._left = os.listdir(self._place.live)  # before the first of ours
            self._wake_reading, self._wake_writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            with suppress(OSError):  # no more of these to be had: then it is looked now and then
                self._writes = disk.Writes(self._place.live)
            self._thread = threading.Thread(
                target=self._follow, name="cronpoll-output", daemon=True
            )
            self._thread.start()

    def _make_directories(self) -> None:
        for directory in (self._place.directory, self._place.live, self._place.spare):
            with suppress(FileExistsError):
                os.mkdir(directory, 0o700)
        self._identity = identity(self._place.directory)

    def _restore(self) -> None:
        """Somebody has removed what was kept, to make room most likely: go on in directories made
        anew. If the whole place is somebody else's by now, nothing is made there."""
        if os.path.isdir(self._place.live) and os.path.isdir(self._place.spare):
            return
        if identity(self._place.directory) in (None, self._identity) and self.held():
            self._make_directories()
            self._note(self._watch_anew)

    def _watch_anew(self) -> None:
        before, self._writes = self._writes, None
        if before is not None:
            before.close()
        with suppress(OSError):
            self._writes = disk.Writes(self._place.live)

    def record(self, task: str, run_id: str, started_at: datetime, tell: Tell) -> Handed:
        """Files for a run that is about to start. It starts also if there can be none: what it
        prints is lost then, and that is said."""
        label = label_of(task, started_at, run_id)
        try:
            self._prepare()
            try:
                return self._recorded(label, task, tell)
            except FileNotFoundError:  # removed a moment ago
                self._prepared_at = -inf
                self._prepare()
                return self._recorded(label, task, tell)
        except (OSError, RuntimeError) as error:  # a full disk, no descriptor, no thread
            why = str(getattr(error, "strerror", None) or error)
            tell(e.TaskOutputNotKept(self._clock.wall(), task, run_id, why))
            return Handed(_nowhere(), _nowhere(), None)

    def _prepare(self) -> None:
        """Begin, and see to it that the place is ours. Many runs start at once: it is looked at
        for the first of them."""
        elapsed = self._clock.monotonic()
        if elapsed - self._prepared_at < _TURN_SECONDS:
            return
        self.begin()
        if not self._is_ours():
            raise OSError(0, _NOT_OURS)
        self._prepared_at = elapsed

    def _recorded(self, label: Label, task: str, tell: Tell) -> Handed:
        stem = label.stem
        self._take_stem(stem)
        self._recorded_at = self._clock.monotonic()
        with ExitStack() as undone:
            undone.callback(remove_live, self._place, stem)
            stdout = self._spares.file(self._place.raw(stem, "stdout"))
            undone.callback(os.close, stdout)
            stderr = self._spares.file(self._place.raw(stem, "stderr"))
            undone.pop_all()
        header = Header(task, label.run_id, label.started_at)
        feed = Feed(task, label.run_id, tell, self._clock)
        recording = Recording(self._place, stem, header, feed, self._limits)
        # Nobody is woken for it: the kernel does that when there is something to read. A start must
        # not have to share the interpreter with a thread that finds nothing.
        self._notes.append(lambda: self._active.__setitem__(stem, recording))
        if self._writes is None:
            self._wake()
        return Handed(stdout, stderr, recording)

    def _take_stem(self, stem: str) -> None:
        """From now on files of this name are ours. Before the first of them is made."""
        with self._lock:
            self._ours.add(stem)

    def _is_ours(self) -> bool:
        with suppress(OSError):  # nobody can say: then it is not written
            return identity(self._place.directory) == self._identity and self.held()
        return False

    def capture(self, task: str, run_id: str, started_at: datetime, tell: Tell) -> Capture:
        """For what a run prints in this process. It has no files before it prints."""
        label = label_of(task, started_at, run_id)
        feed = Mute(task, run_id, tell, self._clock)

        def make() -> Recording:
            if not self._is_ours():
                raise OSError(0, _NOT_OURS)
            self._take_stem(label.stem)
            header = Header(task, run_id, label.started_at)
            recording = Recording(self._place, label.stem, header, feed, self._limits)
            self._active[label.stem] = recording
            return recording

        return Capture(make, self._clock, self._captured)

    def _captured(self, capture: Capture) -> None:
        try:
            self.begin()
        except (OSError, RuntimeError):  # tried again with the next run
            return
        self._note(lambda: self._printed.__setitem__(id(capture), capture))

    def drain(self, recording: Recording, *, wanted: bool) -> Future[tuple[str, ...]]:
        """The process has ended: take in what it has printed last, and say what the log did not
        take. The last lines, if they are wanted."""
        answer: Future[tuple[str, ...]] = Future()
        self._note(lambda: self._drain(recording, answer, wanted))
        return answer

    def close(self, recording: Recording, *, failed: bool) -> None:
        """The run is over, and ended so. What is kept of it becomes one file."""
        recording.over(failed, self._clock.wall())
        self._note(lambda: self._closing.append(recording))

    def relieve(self) -> Future[None]:
        """The disk is full, and somebody needs it more. Resolved when some of it was given back.
        Before the first run it may be full of what an earlier daemon's runs have printed since."""
        answer: Future[None] = Future()
        try:
            self.begin()
        except (OSError, RuntimeError):  # nothing can be given back without it
            answer.set_result(None)
        else:
            self._note(lambda: self._relieve(answer))
        return answer

    def end(self, seconds: float) -> None:
        """The daemon stops: finish what is over, within a bound."""
        with self._lock:
            thread = self._thread
            self._ending = True
        if thread is not None:
            self._wake()
            thread.join(seconds)

    def _note(self, note: Callable[[], None]) -> None:
        self._notes.append(note)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_writing, b"\0")

    # -- the thread --------------------------------------------------------------------------------

    def _follow(self) -> None:
        log = logging.getLogger("cronpoll")
        try:
            self._adopt()
        except Exception:
            log.exception("what earlier runs have left of their output could not be looked through")
        while True:
            try:
                if not self._turn():
                    break
            except Exception:  # ours; what was to be followed is followed on
                log.exception("following the output of runs failed; it goes on")
                select.select([], [], [], _LONGEST_PAUSE)
        if self._may_write:
            self._spares.clear()

    def _turn(self) -> bool:
        """Wait for something to do, and do it. False: it is over."""
        self._wait()
        self._rest()
        self._may_write = self._is_ours()
        self._take_notes()
        if not self._may_write:
            if not self._ending:
                select.select([], [], [], _POLL_PAUSE)
            return not self._ending
        elapsed = self._clock.monotonic()
        if elapsed >= self._pause_until or self._ending:
            self._look(elapsed)
        if self._may_finish(elapsed):
            for _ in range(_FINISHES):
                if self._notes or not self._closing:
                    break
                self._finish(self._closing.popleft())
        if elapsed >= self._lingering_at:
            self._lingering_at = elapsed + _LINGERING_SECONDS
            self._let_go()
        if elapsed >= self._tidy_at:
            self._tidy_at = elapsed + _TIDY_SECONDS
            self._spares.tidy()
            self._tidy()
        elif self._total > self._limits.total:
            self._tidy()
        return not self._ending or bool(self._notes or self._closing or self._printed)

    def _take_notes(self) -> None:
        while self._notes:
            self._notes.popleft()()

    def _may_finish(self, elapsed: float) -> bool:
        """Files that are whole can wait: while runs are being started, these come first."""
        rested = elapsed - self._recorded_at >= _REST_SECONDS
        return rested or self._ending or len(self._closing) > _MOST_CLOSING

    def _wait(self) -> None:
        elapsed = self._clock.monotonic()
        if self._notes or self._ending or (self._closing and self._may_finish(elapsed)):
            return
        handles = [self._wake_reading]
        until = self._tidy_at
        if self._closing:
            until = min(until, self._recorded_at + _REST_SECONDS)
        if any(recording.lingering for recording in self._active.values()):
            until = min(until, self._lingering_at)
        if elapsed < self._pause_until:
            until = min(until, self._pause_until)
        elif self._printed:
            return
        elif self._writes is not None:
            handles.append(self._writes.handle)
        elif self._active:
            until = min(until, self._looked_at + _POLL_PAUSE)
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        poll.poll(max(until - elapsed, 0.0) * 1_000)
        with suppress(BlockingIOError):
            os.read(self._wake_reading, 65_536)

    def _rest(self) -> None:
        """Not at once again: more may come."""
        left = self._turned_at + _TURN_SECONDS - self._clock.monotonic()
        if left > 0 and not self._ending:
            select.select([], [], [], left)
        self._turned_at = self._clock.monotonic()

    def _look(self, elapsed: float) -> None:
        """At every run that has printed something."""
        self._take_orders()
        self._take_notes()  # whoever has written by now has left word before
        if self._writes is None:
            self._orders.update({stem: [] for stem in self._active})
        flooding = False
        news = self._take_printed()
        for stem in list(self._orders):
            order = self._orders.pop(stem)
            recording = self._active.get(stem)
            if recording is not None:
                news |= self._look_at(recording, order)
                flooding |= recording.flooding
        if news:
            soon = elapsed - self._looked_at < 4 * self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if soon else _SHORTEST_PAUSE
            self._pause_until = elapsed + (_FLOOD_PAUSE if flooding else self._pause)
            self._looked_at = elapsed
        elif self._writes is None:
            self._looked_at = elapsed

    def _take_printed(self) -> bool:
        """What was printed in this process."""
        news = False
        printed, self._printed = self._printed, {}
        for capture in printed.values():
            closed = capture.closed  # before: nothing comes after it
            recording = capture.recording
            try:
                news |= capture.flush(self._place)
            except OSError as error:
                self._lost(capture, error)
            recording = capture.recording
            if closed and recording is not None:
                capture.release()
                recording.over(capture.failed, self._clock.wall())
                self._closing.append(recording)
        return news

    def _lost(self, capture: Capture, error: OSError) -> None:
        header = None if capture.recording is None else capture.recording.header
        name = "a callback" if header is None else repr(header.task)
        logging.getLogger("cronpoll").warning(
            "what %s printed could not be kept: %s", name, error.strerror or error
        )

    def _take_orders(self) -> None:
        """Who has written, in which order."""
        names = None if self._writes is None else self._writes.names()
        if names is None:
            self._orders.update({stem: [] for stem in self._active})
            return
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in _STREAM_OF:
                self._orders.setdefault(stem, []).append(_STREAM_OF[kind])

    def _more_of(self, stem: str) -> Sequence[Stream]:
        self._take_orders()
        return self._orders.pop(stem, [])

    def _look_at(self, recording: Recording, order: Sequence[Stream]) -> bool:
        try:
            more = partial(self._more_of, recording.stem)
            return recording.look(order, self._clock.wall(), more)
        except FileNotFoundError:  # somebody has removed it
            self._forget(recording)
        except OSError:  # a full disk: the times of these lines are lost, not more
            pass
        return False

    def _forget(self, recording: Recording) -> None:
        self._active.pop(recording.stem, None)
        self._orders.pop(recording.stem, None)
        with self._lock:
            self._ours.discard(recording.stem)
        recording.close()

    # -- the end of a run --------------------------------------------------------------------------

    def _drain(self, recording: Recording, answer: Future[tuple[str, ...]], wanted: bool) -> None:
        lines: tuple[str, ...] = ()
        try:
            if not self._may_write:
                return
            self._take_orders()
            order = self._orders.pop(recording.stem, [])
            recording.brief = True  # most runs: one file less to make and to remove
            for _ in range(_DRAIN_LOOKS):  # bounded: somebody in the background may go on
                if not self._look_at(recording, order):
                    break
            recording.feed.end()
            if wanted:
                lines = _last(recording)
        finally:
            answer.set_result(lines)

    def _finish(self, recording: Recording) -> None:
        """Make one file of it, unless somebody still writes."""
        if recording.written_by_others():
            lingering = [each for each in self._active.values() if each.lingering]
            if len(lingering) >= LINGERING_LIMIT:
                self._end(lingering[0])
            with suppress(OSError):
                recording.say_over()
            recording.lingering = True
            return
        self._end(recording)

    def _let_go(self) -> None:
        """Nobody writes any more where a process was left in the background, or had outlived its
        daemon."""
        for recording in [each for each in self._active.values() if each.lingering]:
            if not recording.written_by_others():
                self._wind_up(recording)

    def _wind_up(self, recording: Recording) -> None:
        """Nobody writes there any more."""
        self._look_at(recording, [])
        recording.feed.end()
        self._end(recording)

    def _end(self, recording: Recording) -> None:
        if recording.ended is None:
            recording.over(failed=True, now=self._clock.wall())
        over = recording.ended
        assert over is not None
        try:
            if self._is_ours():
                size = finish(
                    self._place,
                    recording.stem,
                    recording.header,
                    recording.records,
                    self._limits,
                    over,
                )
                self._total += occupied(size) if size else 0
                recording.close()  # we are one who has them open
                self._put_away(recording.stem)
        except OSError:
            # A full disk: its files stay as they are, bounded, and are read as they are. The next
            # start finishes them.
            with suppress(OSError):
                recording.say_over()
        self._forget(recording)

    def _put_away(self, stem: str) -> None:
        """The files of a run of which there is another now, or nothing to keep."""
        for stream in STREAMS:
            self._spares.give_back(self._place.raw(stem, stream))
        with suppress(FileNotFoundError):
            os.unlink(self._place.beside(stem, INDEX))

    # -- what is there already ---------------------------------------------------------------------

    def _adopt(self) -> None:
        """What an earlier daemon has left."""
        self._spares.clear()
        known = {digest_of(name): name for name in self._names()}
        left = {found[0].stem: found[0] for name in self._left if (found := parsed(name))}
        for name in os.listdir(self._place.directory):
            found = parsed(name)
            if found is None:
                if name.endswith(TEMPORARY):
                    os.unlink(os.path.join(self._place.directory, name))
                continue
            (label, kind), stem = found, found[0].stem
            if kind in ("ok", "failed") and stem in left:  # it died over removing the rest
                remove_live(self._place, stem)
                del left[stem]
            elif kind == INDEX and stem not in left:
                with self._lock:
                    if stem not in self._ours:
                        remove_live(self._place, stem)
        for label in left.values():
            try:
                self._take_over(label, known.get(label.digest))
            except OSError as error:  # the others are followed all the same
                name, why = known.get(label.digest, label.stem), error.strerror or error
                log = logging.getLogger("cronpoll")
                log.warning("what a run of %r has left is not followed: %s", name, why)

    def _take_over(self, label: Label, known: str | None) -> None:
        stem = label.stem
        header, records = index_of(self._place, stem)
        if header is None:
            header = Header(known or "", label.run_id, label.started_at)
            records = []
        feed = Feed(header.task, label.run_id, self._tell, self._clock)
        recording = Recording(self._place, stem, header, feed, self._limits, records)
        self._active[stem] = recording
        for stream in STREAMS:  # the one whose other file was not made
            path = self._place.raw(stem, stream)
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(path).st_mode):  # somebody has put it in its place
                    os.unlink(path)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        recording.lingering = True
        if self.open_runs is not None and label.run_id not in self.open_runs:
            recording.feed = Mute(header.task, label.run_id, self._tell, self._clock)
            self._look_at(recording, [])
            recording.feed = feed
        if not recording.written_by_others():
            self._wind_up(recording)

    def _relieve(self, answer: Future[None]) -> None:
        try:
            if not self._may_write:
                return
            for recording in list(self._active.values()):
                self._look_at(recording, [])  # what has come since may be all that fills the disk
                with suppress(OSError):  # even to say it may be more than the disk takes
                    recording.squeeze()
            self._tidy(self._total // 2)
        finally:
            answer.set_result(None)

    def _tidy(self, room: int | None = None) -> None:
        """Remove what is too old, and what there is no room for."""
        now = self._clock.wall()
        there: list[tuple[float, int, str]] = []
        with os.scandir(self._place.directory) as entries:
            for entry in entries:
                found = parsed(entry.name)
                if found is None or found[1] not in ("ok", "failed"):
                    continue
                with suppress(FileNotFoundError):
                    age = now - found[0].started_at
                    worth = self._limits.worth(age, failed=found[1] == "failed")
                    there.append((worth, occupied(entry.stat().st_size), entry.path))
        self._total = sum(size for _, size, _ in there)
        if room is None:
            room = self._limits.total
            if self._total > room:
                room = int(_ROOM * room)
        for worth, size, path in sorted(there):
            if worth > 0 and self._total <= room:
                break
            with suppress(OSError):
                os.unlink(path)
                self._total -= size


def _last(recording: Recording) -> tuple[str, ...]:
    try:
        blocks = live_blocks(
            recording.place,
            recording.stem,
            recording.header.started_at,
            recording.records,
            ITS_END,
        )
        lines = last_lines(blocks, recording.header.started_at, TAIL_LINES)
    except OSError:
        return ()
    return tuple(abbreviate(line.text, TAIL_LINE_LIMIT) for line in lines)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
