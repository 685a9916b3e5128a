"""The first moments of a child that has limits or a priority: sets them, and becomes the program.

`python -I -S launcher.py REQUEST ERRORS`: two descriptors. The request says what to set, whose
rights the program has, its words and its environment. If it cannot be begun, what failed goes to
the other descriptor, which closes when it is begun.

A process of its own, because a process with threads must not run code of Python between `fork` and
`exec`, and because these settings cannot be made for a child from outside before it runs. It runs
with the daemon's rights until the program begins: others may not be able to read the interpreter.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any, Final

_GRACE_SECONDS: Final = 5
"""Between the signal that processor time is used up, and the kill."""


def _limited(limits: dict[str, int | None]) -> None:
    for name, kind in (
        ("memory", resource.RLIMIT_AS),
        ("cpu", resource.RLIMIT_CPU),
        ("files", resource.RLIMIT_NOFILE),
    ):
        value = limits.get(name)
        if value is None:
            continue
        hard = resource.getrlimit(kind)[1]
        most = value + _GRACE_SECONDS if name == "cpu" else value
        if hard != resource.RLIM_INFINITY and os.geteuid() != 0:
            if value > hard:
                raise ValueError(f"limits: {name} is {value}, and the daemon's own limit is {hard}")
            most = min(most, hard)
        resource.setrlimit(kind, (value, most))


def _become(request: dict[str, Any]) -> None:
    if request["nice"] is not None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
        except OSError as error:
            raise ValueError(f"nice: {request['nice']}: {error.strerror}") from error
    switch = request["switch"]
    if "extra_groups" in switch:
        os.setgroups(switch["extra_groups"])
    if "group" in switch:
        os.setregid(switch["group"], switch["group"])
    if "user" in switch:
        os.setreuid(switch["user"], switch["user"])
    _limited(request["limits"])


def main() -> None:
    reading, writing = map(int, sys.argv[1:3])
    os.set_inheritable(writing, False)
    with open(reading, "rb") as opened:
        request = json.loads(opened.read())
    failed: dict[str, Any]
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by this interpreter; it would stay so
        signal.signal(ignored, signal.SIG_DFL)
    try:
        _become(request)
        os.execvpe(request["words"][0], request["words"], request["env"])  # noqa: S606  no shell
    except OSError as error:
        failed = {"errno": error.errno, "file": request["words"][0]}
    except ValueError as error:
        failed = {"text": str(error)}
    os.write(writing, json.dumps(failed).encode())
    os._exit(127)


if __name__ == "__main__":
    main()
