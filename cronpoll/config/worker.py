"""The check of a large file in a process of its own, so that nobody waits for it.

A thread would not do: it shares the interpreter with the loop, and the collector's passes over a
hundred thousand new tasks stop both. `python -P -m cronpoll.config.worker` takes the question from
standard input and answers on standard output, both pickled: the registry without its tasks, then
the tasks in slices, each so small that taking it in holds nobody up.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Final

from msgspec.structs import replace

from cronpoll.config.bundle import Bundle
from cronpoll.config.check import Rules, check_bundle
from cronpoll.config.registry import Registry, Task
from cronpoll.core.text import signal_name

LARGE: Final = 100_000
"""Bytes of a file from which on a process pays: about a thousand tasks, a twentieth of a second."""
_SLICE: Final = 250
"""Tasks: about a millisecond."""


class WorkerDiedError(Exception):
    """The process that checks has ended without an answer."""


def check_aside(
    bundle: Bundle,
    now: datetime,
    host: tzinfo,
    rules: Rules,
    known: Mapping[str, Task],
) -> Registry:
    """`check_bundle`, by a child. Of a task that is as it was before, by its name in `known`, the
    earlier value is given: it need not be kept twice, nor made ready again."""
    try:
        question = pickle.dumps((bundle, now, host, rules))
    except pickle.PicklingError:  # the host's zone has no name by which it could be sent
        return check_bundle(bundle, now, host, rules)
    child = subprocess.Popen(  # noqa: S603  a constant
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    answers = open(child.stdout.fileno(), "rb", closefd=False)  # noqa: SIM115  closed below
    tasks: list[Task] = []
    try:
        with child.stdin:
            remaining = memoryview(question)
            while remaining:
                remaining = remaining[child.stdin.write(remaining) :]
        registry: Registry = pickle.load(answers)  # noqa: S301  our own child
        while more := pickle.load(answers):  # noqa: S301
            tasks += [_known(task, known) for task in more]
    except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
        raise WorkerDiedError(f"the process that checks it {_end(child)}") from error
    finally:
        _end(child)
        answers.close()
        child.stdout.close()
    return replace(registry, tasks=tuple(tasks))


def _known(task: Task, known: Mapping[str, Task]) -> Task:
    """Commands alone: among the arguments of a callback 1 and true are equal, and not the same."""
    before = known.get(task.name)
    return before if before is not None and before == task and task.command else task


def _end(child: subprocess.Popen[bytes]) -> str:
    """It is gone, whether or not it was done. How it ended."""
    if child.returncode is None:
        try:
            status = child.wait(1.0)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
    else:
        status = child.returncode
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit {status}"


def main() -> None:
    gc.disable()  # all that is made here is needed to the end
    out = sys.stdout.buffer
    registry = check_bundle(*pickle.load(sys.stdin.buffer))  # noqa: S301  our own parent
    pickle.dump(replace(registry, tasks=()), out)
    # Where a task stands in the file does not make it another one.
    tasks = [replace(task, index=0, written=()) for task in registry.tasks]
    for first in range(0, len(tasks), _SLICE):
        pickle.dump(tasks[first : first + _SLICE], out)
    pickle.dump([], out)
    out.flush()
    os._exit(0)  # what is left needs no tidying


if __name__ == "__main__":
    main()
