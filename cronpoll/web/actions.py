"""What the page can order: run, stop, suspend, resume, reload. A page asks first and carries a
ticket; the form sends it back. The daemon records who asked. Definitions are never edited here.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from cronpoll.core.text import count, visible, well_formed
from cronpoll.core.values import WrongError, duration
from cronpoll.daemon import wire
from cronpoll.web.access import Doors, Visitor
from cronpoll.web.html import Html, link, tag
from cronpoll.web.scene import Page, Part, Scene, heading, message, task_href

_ANSWER_SECONDS: Final = 20.0
_RELOAD_SECONDS: Final = 300.0


class Verb(NamedTuple):
    question: str
    words: str
    button: str


VERBS: Final = {
    "run": Verb(
        "Start {} now?",
        "It settles nothing: the task still runs when it is due. Refused while the task runs.",
        "Start it",
    ),
    "stop": Verb(
        "End what runs of {}?",
        "It is asked to end, and killed if it does not. Its period counts as executed, and it is "
        "not tried again.",
        "End it",
    ),
    "suspend": Verb(
        "Suspend {}?",
        "Nothing of it starts until it is resumed, over restarts and edits of the file. What runs "
        "goes on.",
        "Suspend it",
    ),
    "resume": Verb(
        "Resume {}?",
        "It runs again when it is due. What passed meanwhile is not made up for, unless a deadline "
        "allows it.",
        "Resume it",
    ),
    "reload": Verb(
        "Let the daemon read its file again?",
        "It follows changes by itself; this shows at once what it makes of the file.",
        "Reload",
    ),
}


class OrderError(Exception):
    """It was not done. The text says why."""


def ask_page(scene: Scene, doors: Doors) -> Page:
    """Ask whether it is meant."""
    verb, task = scene.query.get("what", ""), scene.query.get("task", "")
    known = VERBS.get(verb)
    if known is None or (verb != "reload" and task not in scene.watch.book.tasks):
        return message("There is nothing like that to do.", "", status=404)
    if not scene.may_operate:
        return message("You may look, and not act.", scene.visitor.words, status=403)
    ticket = doors.ticket(scene.visitor, verb, task, scene.now.timestamp())
    fields: list[Html] = []
    if verb == "suspend":
        fields = [
            tag("label", "For how long, such as 2h or 3d; empty: until it is resumed",
                tag("input", name="for", autocomplete="off", maxlength=40)),
            tag("label", "Why", tag("input", name="reason", autocomplete="off", maxlength=200)),
        ]  # fmt: skip
    back = "/plan" if verb == "reload" else task_href(task)
    form = tag(
        "form",
        tag("input", type="hidden", name="what", value=verb),
        tag("input", type="hidden", name="task", value=task),
        tag("input", type="hidden", name="ticket", value=ticket),
        fields,
        tag("div", tag("button", known.button, class_="first", autofocus=not fields),
            link("Not now", back, class_="button"), class_="buttons"),
        method="post",
        action="/do",
        class_="form",
        id="form",
    )  # fmt: skip
    parts = [heading(known.question.format(visible(task)), known.words), Part("form", form)]
    return Page(known.button, parts, live=False)


def request_of(verb: str, task: str, lasting: str, reason: str, who: Visitor) -> wire.Request:
    """What is asked of the daemon. `OrderError` if it makes no sense."""
    asker, task = well_formed(who.name)[: wire.ASKER_LIMIT], well_formed(task)
    match verb:
        case "run":
            return wire.Run(task=task, asked_by=asker)
        case "stop":
            return wire.StopRun(task=task, asked_by=asker)
        case "resume":
            return wire.Resume(task=task, asked_by=asker)
        case "reload":
            return wire.Reload(asked_by=asker)
        case "suspend":
            for_ms = None
            if lasting.strip():
                try:
                    for_ms = duration(lasting.strip()).total_seconds() * 1_000
                except WrongError as error:
                    raise OrderError(f"{lasting!r}: {error}") from error
            said = well_formed(reason)[: wire.REASON_LIMIT]
            return wire.Suspend(task=task, for_ms=for_ms, reason=said, asked_by=asker)
    raise OrderError("There is nothing like that to do.")


async def order(directory: str, request: wire.Request) -> str:
    """Have the daemon do it. What it answers, in words; `OrderError` if it does not."""
    match request:
        case wire.Run():
            started = await _asked(directory, request, wire.Started)
            return started.run_id
        case wire.Reload():
            told = await _asked(directory, request, wire.Reloaded, _RELOAD_SECONDS)
            if not told.accepted:
                raise OrderError(f"The file was rejected: {told.reason}")
            return f"accepted, {count(told.tasks, 'task')}"
    return (await _asked(directory, request, wire.Rested)).state


async def _asked(
    directory: str, request: wire.Request, kind: type[wire.A], seconds: float = _ANSWER_SECONDS
) -> wire.A:
    try:
        answer = await asyncio.to_thread(wire.ask, directory, request, kind, seconds)
    except wire.UnreachableError as error:
        raise OrderError(f"The daemon cannot be reached: {error}") from error
    if isinstance(answer, wire.Refused):
        raise OrderError(f"The daemon refused: {answer.error}")
    return answer


def sign_in_page(wrong: bool) -> Page:
    form = tag(
        "form",
        tag("label", "Token", tag("input", type="password", name="token", autocomplete="off",
                                  required=True, autofocus=True)),
        tag("button", "Sign in", class_="first"),
        method="post",
        action="/sign-in",
        class_="form",
        id="form",
    )  # fmt: skip
    text = (
        "That is no token of this server."
        if wrong
        else "A token stands in the file that the server was started with (--token-file)."
    )
    parts = [heading("Sign in with a token.", text), Part("form", form)]
    return Page("Sign in", parts, live=False, status=401 if wrong else 200)
