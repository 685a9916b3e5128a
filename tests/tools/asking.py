"""Ask a daemon as the commands do, by the verb, and have the answer as it went over the socket."""

from __future__ import annotations

import json
from typing import Any

from cronpoll.daemon import wire

_KINDS: dict[str, tuple[type[wire.Request], type[Any]]] = {
    "ping": (wire.Ping, wire.Pong),
    "run": (wire.Run, wire.Started),
    "suspend": (wire.Suspend, wire.Rested),
    "resume": (wire.Resume, wire.Rested),
    "stop-run": (wire.StopRun, wire.Rested),
    "several": (wire.Several, wire.Done),
    "reload": (wire.Reload, wire.Reloaded),
}


def asked(
    directory: str, verb: str, seconds: float = wire.ANSWER_SECONDS, **arguments: Any
) -> dict[str, Any]:
    request, answer = _KINDS[verb]
    said = wire.ask(directory, request(**arguments), answer, seconds)
    return json.loads(wire.line_of(said))
