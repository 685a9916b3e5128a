"""A run: one invocation of a callback, coroutine or thread, and how it ends.

Whatever a callback raises is the outcome of its run and nothing more: SystemExit,
KeyboardInterrupt, its own BaseException, a CancelledError it raised itself. A run never changes
state; it reports its end to the loop, which does.
"""

from __future__ import annotations

import _thread
import asyncio
import inspect
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from cronpoll.core.errors import abbreviate
from cronpoll.core.events import Event
from cronpoll.core.model import ERROR_LIMIT, Callback, ProcessExit
from cronpoll.core.steps import Cut, End

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[Event], None]


class RunFailedError(Exception):
    """A failure that its text says all about: a traceback of ours would only be noise. `output`:
    the last lines printed."""

    def __init__(self, kind: str, text: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.kind = kind
        self.output = output


class ThreadPerCall(Executor):
    """A daemon thread for each call.

    Not a pool: a function that never returns must not hold up others nor the exit of the process,
    and a thread that cannot be started has to be an error of this one call, with nothing left in a
    queue to run later after all.

    Not `threading.Thread` either: its `start` waits for the new thread to say that it has begun,
    and one that dies before that, for want of memory, would be waited for for ever, on the loop.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: _Call[T] = _Call()

        def work(_: _Life) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # whoever waits gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        life = _Life()
        future.life = weakref.ref(life, lambda _: future.thread_has_ended())
        _thread.start_new_thread(work, (life,))
        return future


class _Life:
    """Held by a thread alone: gone when the thread is, however it ended."""

    __slots__ = ("__weakref__",)


class _Call(Future[T]):
    """What becomes of a call in a thread."""

    life: weakref.ref[_Life] | None = None

    def thread_has_ended(self) -> None:
        self.life = None
        if not self.done():
            self.set_exception(RuntimeError("its thread ended before it had reported"))


class Printed(Protocol):
    """What a callback in this process has printed: within bounds, which somebody counts."""

    def finish(self, error: BaseException | None = None) -> object:
        """The run has ended, perhaps of an error: say what was dropped."""


class Run(msgspec.Struct, gc=False, eq=False):
    """One invocation. `cut` says that, and why, it was ended from outside; through `tell` it
    reports what happens in it. `period`: for which a rule has started it; None if it is by hand.

    `gone`: nothing of it is at work any more. A thread goes on when the loop that waited for it is
    closed, so it says so itself, and whoever has to know (`on_gone`) may be called from it.

    Out of the garbage collector's sight, because a hundred thousand of them can begin in one
    second. The cycle through `task` is broken when the run has ended.
    """

    task_name: str
    run_id: str
    callback: Callback
    is_async: bool
    started_at: datetime
    started_elapsed: float
    tell: Tell
    timeout: float | None = None
    period: datetime | None = None
    cut: Cut | None = None
    begun: bool = False
    open: bool = True
    task: asyncio.Task[None] | None = None
    error: BaseException | None = None
    ended_at: datetime | None = None
    ended_elapsed: float = 0.0
    gone: bool = False
    on_gone: Callable[[], None] | None = None
    printed: Printed | None = None
    exit: ProcessExit | None = None

    def has_gone(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def when_gone(self, then: Callable[[], None]) -> None:
        """Call `then` once nothing of the run is at work any more; perhaps twice, if it ends at
        this very moment."""
        self.on_gone = then
        if self.gone:
            then()

    def end(self, reason: Cut) -> None:
        """Ask a coroutine to end. A thread cannot be asked."""
        if self.cut is None and self.open and self.is_async and self.task is not None:
            self.cut = reason
            if (
                self.begun
            ):  # a task cancelled before its first step would end without reporting anything
                self.task.cancel()


current_run: ContextVar[Run | None] = ContextVar("cronpoll_current_run", default=None)
"""The run in whose context we are, also in tasks and threads that it started."""

Report = Callable[[Run], None]
OfFailure = Callable[[Run, BaseException], Printed | None]
"""Where the traceback of a run goes that has printed nothing."""


async def perform(
    run: Run, threads: Executor, report: Report, of_failure: OfFailure | None = None
) -> None:
    """Invoke the callback and report how it ended. Never raises."""
    _end_if_forked(run)
    current_run.set(run)
    run.begun = True
    error: BaseException | None = None
    in_thread = False
    try:
        if run.cut is not None:
            raise asyncio.CancelledError
        if run.is_async:
            await run.callback()
        else:
            in_thread = True
            error, result = await _in_thread(run, threads)
            in_thread = False
            if error is None and inspect.isawaitable(result):
                await result
    except BaseException as raised:  # whatever a callback raises is a failed run, no more
        error = raised
        in_thread = in_thread and isinstance(raised, asyncio.CancelledError)
    _end_if_forked(run)
    if error is not None:
        from_callback(error, __file__)
    run.open = False
    run.error = error
    if error is not None and run.printed is None and of_failure is not None:
        run.printed = of_failure(run, error)
    if run.printed is not None:
        run.printed.finish(error)
    report(run)
    if not in_thread:
        run.has_gone()


def from_callback(error: BaseException, ours: str) -> None:
    """Let its traceback begin in the callback: without the frames up to the last one of our
    file."""
    trace = error.__traceback__
    while trace is not None:
        following = trace.tb_next
        if trace.tb_frame.f_code.co_filename == ours and following is not None:
            error.__traceback__ = following
        trace = following


async def _in_thread(run: Run, threads: Executor) -> tuple[BaseException | None, Any]:
    context = copy_context()

    def work() -> tuple[BaseException | None, Any]:
        # Caught here and handed over as a value: a future refuses to carry some exceptions
        # (StopIteration).
        result: Any = None
        try:
            result = context.run(run.callback)
        except BaseException as raised:
            return raised, None
        finally:
            _end_if_forked(run)
            if not inspect.isawaitable(result):
                run.has_gone()
        return None, result

    return await asyncio.get_running_loop().run_in_executor(threads, work)


# -- forked children -------------------------------------------------------------------------------

_loop: asyncio.AbstractEventLoop | None = None
"""On which runs are performed."""
_left: asyncio.AbstractEventLoop | None = None
"""In a child that a callback has forked: the loop of its parent, on which it must not go on. It
would be a second scheduler, with the first one's socket, journal and runs."""


def _forked() -> None:
    """In the child. What it does inside the callback is its own business. It ends when it returns
    from there, or when it comes back to the loop."""
    global _left  # noqa: PLW0603
    if current_run.get() is None or _loop is None:
        return
    _left = _loop
    with suppress(RuntimeError):  # it is closed
        _left.call_soon(os._exit, 0)


os.register_at_fork(after_in_child=_forked)


def _end_if_forked(run: Run) -> None:
    global _loop  # noqa: PLW0603
    loop = None if run.task is None else run.task.get_loop()
    if loop is not None and loop is _left:
        os._exit(0)
    _loop = loop or _loop


def describe(error: BaseException) -> str:
    """An exception as one bounded text that is valid Unicode, whatever its own `__str__` does."""
    if isinstance(error, RunFailedError):
        return _valid(abbreviate(str(error), ERROR_LIMIT))
    try:
        text = str(error)
    except BaseException as broken:  # its `__str__` is the callback's code, too
        text = f"(its text cannot be rendered: {type(broken).__name__})"
    name = kind_of(error)
    return _valid(abbreviate(f"{name}: {text}" if text else name, ERROR_LIMIT))


def kind_of(error: BaseException) -> str:
    kind = error.kind if isinstance(error, RunFailedError) else type(error).__name__
    return _valid(abbreviate(kind, ERROR_LIMIT))


def _valid(text: str) -> str:
    """Text that can be written as UTF-8: unpaired surrogates become visible instead of an error in
    the journal."""
    return text.encode(errors="backslashreplace").decode()


def end_of(run: Run, error: BaseException | None, at: datetime, elapsed: float) -> End:
    """How a run has ended, in the words of its record."""
    duration = round((elapsed - run.started_elapsed) * 1_000, 3)
    end = End(at, elapsed, duration, run.cut, exit=run.exit)
    output = error.output if isinstance(error, RunFailedError) else ()
    if run.cut == "timeout":
        return end._replace(
            error=f"Timeout: ended after {run.timeout:g} s", error_type="Timeout", output=output
        )
    if error is None:
        return end
    return end._replace(error=describe(error), error_type=kind_of(error), output=output)
