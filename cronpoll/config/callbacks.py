"""Whether callbacks can be imported, asked in a child process with a time limit.

An import that fails, raises, exits, kills its process or hangs is a problem of that task, with its
cause. One child answers for all callbacks; if it dies or hangs over one, the next child goes on
behind that one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cronpoll.core.errors import abbreviate
from cronpoll.core.text import signal_name

TIME_LIMIT: Final = 20.0
"""Seconds for one import: generous for heavy frameworks on a slow disk, short enough to wait for.
"""


class Call(NamedTuple):
    """A callback and how it is called: with so many positional arguments, and keywords of these
    names."""

    target: str
    positional: int = 0
    names: tuple[str, ...] = ()


def look_up_in_child(
    calls: Sequence[Call],
    path: Sequence[str],
    limit: float = TIME_LIMIT,
    *,
    check_ownership: bool = False,
) -> dict[Call, dict[str, Any]]:
    """For each call: `{"async": bool}`, or `{"problem": text}`. `check_ownership`: import only what
    root alone can write."""
    remaining = list(enumerate(dict.fromkeys(calls)))
    results: dict[Call, dict[str, Any]] = {}
    while remaining:
        answered, stuck = _ask(remaining, path, limit, check_ownership)
        for index, call in remaining:
            if index in answered:
                results[call] = answered[index]
        done = set(answered)
        if stuck is not None:
            index, problem = stuck
            results[dict(remaining)[index]] = {"problem": problem}
            done.add(index)
        if not done:
            raise RuntimeError("the process that imports callbacks does not start")
        remaining = [(index, call) for index, call in remaining if index not in done]
    return results


def _ask(
    calls: list[tuple[int, Call]], path: Sequence[str], limit: float, check_ownership: bool
) -> tuple[dict[int, dict[str, Any]], tuple[int, str] | None]:
    """One child's answers, and the callback over which it died or hung, with what happened."""
    reading, writing = os.pipe()
    request = {
        "answers": writing,
        "path": list(path),
        "calls": calls,
        "check_ownership": check_ownership,
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "cronpoll.config.importer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    answered: dict[int, dict[str, Any]] = {}
    current: int | None = None
    timed_out = False
    try:
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(request).encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; that it gave no answer says so
        for answer in _lines(reading, limit):
            if answer is None:
                timed_out = True
                break
            if "begin" in answer:
                current = answer["begin"]
            else:
                answered[answer.pop("done")] = answer
                current = None
    finally:
        os.close(reading)
        _end(child)
    if current is None:
        return answered, None
    return answered, (current, _what_happened(child.returncode, timed_out, limit))


def _lines(descriptor: int, limit: float) -> Any:
    """The answers as they come; None if none came for `limit` seconds."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(limit):
                yield None
                return
            data = os.read(descriptor, 65_536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from (json.loads(line) for line in lines)


def _end(child: subprocess.Popen[bytes]) -> None:
    """The child and whatever it has started: gone, whether or not it was done."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def _what_happened(status: int, timed_out: bool, limit: float) -> str:
    if timed_out:
        return f"importing it takes longer than {limit:g} s"
    if status < 0 and -status != signal.SIGKILL:
        return abbreviate(f"importing it kills its process ({signal_name(-status)})")
    return "importing it ends its process"
