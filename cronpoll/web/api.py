"""/api/v1: what `--json` gives, for programs. One table of endpoints, from which the routes and the
OpenAPI document are made; what is answered are values of `core.view`.

GET asks, POST orders. An order needs the role `operate`. A program says who it is with a bearer
token, or comes through the Unix socket or a trusted proxy. `Idempotency-Key`: an order with a key
that was seen in the last ten minutes is not carried out again, and gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cronpoll import __version__
from cronpoll.core.balance import balance
from cronpoll.core.calendar import upcoming
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.text import local, well_formed
from cronpoll.core.view import (
    Balance,
    Entry,
    Finding,
    Histogram,
    Plan,
    Status,
    Task,
    Upcoming,
    View,
)
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import floor_minute
from cronpoll.output.reading import Item, OutputReader
from cronpoll.web.access import TICKET_SECONDS
from cronpoll.web.actions import OrderError, order, request_of
from cronpoll.web.filepages import copied, foresee, histogram, tomorrow
from cronpoll.web.scene import Scene
from cronpoll.web.tally import last_day
from cronpoll.web.taskpage import moment_in
from cronpoll.web.watch import why_here

_MOST: Final = 1_000
_KEYS: Final = 10_000


class RefusedError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Refusal(View, frozen=True):
    """Why there is no answer."""

    error: str


class Done(View, frozen=True):
    """An order was carried out. `result`: the run's id, or the state in words."""

    result: str


class Judgement(View, frozen=True):
    """What the judge says of one promise."""

    promise: str
    verdict: str
    occasions: int
    violations: int
    open: int


class Audited(View, frozen=True):
    """What the judge says of the record. `at`: when. Null if it has not judged yet."""

    clean: bool | None
    at: datetime | None
    events: int
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...]


class Parameter(NamedTuple):
    name: str
    schema: dict[str, Any]
    words: str
    required: bool = False


_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 1_000}
TASK: Final = Parameter("task", _NAME, "The name of a task.", required=True)
AT: Final = Parameter(
    "at",
    {"type": "string", "format": "date-time"},
    "An instant, RFC 3339 with its offset.",
    required=True,
)
SINCE: Final = Parameter("since", {"type": "string", "format": "date-time"}, "Not older.")
RUN: Final = Parameter("run", _NAME, "The id of a run.", required=True)
NUMBER: Final = Parameter(
    "number", {"type": "integer", "minimum": 1, "maximum": _MOST, "default": 50}, "At most so many."
)
OFFSET: Final = Parameter(
    "offset", {"type": "integer", "minimum": 0, "maximum": 10_000_000, "default": 0}, "From which."
)
ONE: Final = Parameter("task", _NAME, "Only this task.")
FOR: Final = Parameter("for", {"type": "string", "maxLength": 40}, 'For how long, such as "2h".')
REASON: Final = Parameter("reason", {"type": "string", "maxLength": 200}, "What to record.")


class Given:
    """The parameters of a request, checked against what the endpoint says of them."""

    def __init__(self, endpoint: Endpoint, query: Any) -> None:
        known = {each.name: each for each in endpoint.parameters}
        unknown = sorted(set(query) - set(known))
        if unknown:
            raise RefusedError(400, f"there is no parameter {unknown[0]!r}")
        self._values: dict[str, Any] = {}
        for each in endpoint.parameters:
            values = query.getlist(each.name)
            if not values:
                if each.required:
                    raise RefusedError(400, f"{each.name} is needed: {each.words}")
                self._values[each.name] = each.schema.get("default")
                continue
            if len(values) > 1:
                raise RefusedError(400, f"{each.name} is given twice")
            self._values[each.name] = _checked(each, values[0])

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


def _checked(parameter: Parameter, text: str) -> Any:
    schema = parameter.schema
    if schema["type"] == "integer":
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else -1
        if not schema["minimum"] <= number <= schema["maximum"]:
            raise RefusedError(400, f"{parameter.name}: expected a number from "
                               f"{schema['minimum']} to {schema['maximum']}")  # fmt: skip
        return number
    if schema.get("format") == "date-time":
        moment = moment_in(text)
        if moment is None:
            raise RefusedError(400, f"{parameter.name}: expected an instant with its offset")
        return moment
    if not schema.get("minLength", 0) <= len(text) <= schema["maxLength"]:
        raise RefusedError(400, f"{parameter.name}: too long, or empty")
    return text


Answering = Callable[[Scene, Given], Any]


class Endpoint(NamedTuple):
    path: str
    words: str
    kind: Any
    answer: Answering
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"


# -- asking ----------------------------------------------------------------------------------------


def _status(scene: Scene, given: Given) -> Status:
    watch = scene.watch
    tasks = list(scene.tasks.values())
    if given["task"] is not None:
        tasks = [task for task in tasks if task.task == given["task"]]
    first = given["offset"]
    bad = ("failing", "quarantined", "interrupted")
    well = watch.daemon.sound and not any(task.state in bad for task in tasks)
    return Status(
        well=well,
        at=scene.now,
        state_directory=well_formed(watch.reader.place),
        daemon=watch.daemon,
        total=len(tasks),
        tasks=tuple(tasks[first : first + given["number"]]),
        balance=last_day(watch.tally, watch.since, scene.now),
    )


async def _past(scene: Scene, name: str) -> Any:
    past = await scene.watch.past(name)
    if past is None:
        raise RefusedError(404, "no task of this name is known")
    past.now = scene.now
    return past


async def _history(scene: Scene, given: Given) -> list[Entry]:
    past = await _past(scene, given["task"])
    runs = [
        run for run in past.attempts if given["since"] is None or run.started_at >= given["since"]
    ]
    return list(runs[-given["number"] :])


async def _why(scene: Scene, given: Given) -> Finding:
    past = await _past(scene, given["task"])
    return await why_here(scene.watch, past, floor_minute(given["at"]))


async def _balance(scene: Scene, given: Given) -> Balance:
    past = await _past(scene, given["task"])
    since = given["since"] or scene.now - timedelta(days=1)
    if since > scene.now:
        raise RefusedError(400, "since lies ahead")
    if scene.now - since > timedelta(days=100):
        raise RefusedError(400, "since lies more than 100 days back")
    return balance([past], since, scene.now)


def _next(scene: Scene, given: Given) -> list[Upcoming]:
    state = scene.watch.book.tasks.get(given["task"])
    if state is None or not state.registered:
        raise RefusedError(404, "no task of this name is registered")
    name = given["task"]
    try:
        schedule = scene.watch.calendar.schedule(name, state.config)
    except InvalidCronExpressionError as error:
        raise RefusedError(409, error.message) from error
    zone = scene.watch.calendar.zones.named(state.config.zone)
    windowed = isinstance(schedule, PeriodSchedule)
    number = min(given["number"], 500)
    found = [
        Upcoming(name, at, local(at, zone, seconds=bool(at.second)),
                 schedule.periods_at(at)[-1] if windowed else None)
        for at in upcoming(schedule, scene.now, number)
    ]  # fmt: skip
    found += [
        Upcoming(name, start.due_at, local(start.due_at, zone, seconds=True), ordered=True,
                 ordered_by=None if start.by is None else str(start.by))
        for start in state.ordered if start.due_at > scene.now
    ]  # fmt: skip
    return sorted(found, key=lambda each: each.at)[:number]


async def _plan(scene: Scene, _: Given) -> Plan:
    file = scene.watch.daemon.config
    if file is None:
        raise RefusedError(409, "which file is in force is not known: the daemon does not answer")
    seen = await asyncio.to_thread(foresee, scene.watch, copied(scene.watch.book), file)
    if seen.errors:
        raise RefusedError(409, f"the file would be rejected: {seen.problems[0]}")
    return seen.plan


async def _spread(scene: Scene, _: Given) -> Histogram:
    return await histogram(scene, tomorrow(scene))


def _audit(scene: Scene, _: Given) -> Audited:
    judged = scene.watch.judged
    if judged is None:
        return Audited(None, None, 0, (), ())
    told = tuple(
        Judgement(each.guarantee.name, each.verdict, each.occasions, each.violations, each.open)
        for each in judged.report.verdicts
    )
    notes = tuple(judged.report.notes)
    return Audited(judged.report.clean, judged.at, judged.report.events, told, notes)


async def _output(scene: Scene, given: Given) -> list[Item]:
    reader = OutputReader(scene.watch.reader.place)
    run = await asyncio.to_thread(reader.run, given["run"])
    if run is None:
        raise RefusedError(404, "nothing is kept of a run with this id")
    items = await asyncio.to_thread(reader.lines, run)
    return [*items[-given["number"] :]]


# -- ordering --------------------------------------------------------------------------------------


def _ordering(verb: str) -> Answering:
    async def ordered(scene: Scene, given: Given) -> Done:
        task = "" if verb == "reload" else given["task"]
        if verb != "reload" and task not in scene.watch.book.tasks:
            raise RefusedError(404, "no task of this name is known")
        lasting, reason = (given["for"], given["reason"]) if verb == "suspend" else (None, None)
        try:
            request = request_of(verb, task, lasting or "", reason or "", scene.visitor)
            return Done(await order(scene.watch.reader.place, request))
        except OrderError as error:
            raise RefusedError(409, well_formed(str(error))) from error

    return ordered


ENDPOINTS: Final = (
    Endpoint("/status", "Tasks, the daemon, and the balance of the last day.", Status, _status,
             (ONE, OFFSET, NUMBER)),
    Endpoint("/history", "Runs of a task, the newest at the end.", list[Entry], _history,
             (TASK, SINCE, NUMBER)),
    Endpoint("/why", "What became of a due minute.", Finding, _why, (TASK, AT)),
    Endpoint("/balance", "What was due of a task, and what became of it.", Balance, _balance,
             (TASK, SINCE)),
    Endpoint("/next", "Starts to come.", list[Upcoming], _next, (TASK, NUMBER)),
    Endpoint("/output", "Lines that a run printed, the last of them.", list[Item], _output,
             (RUN, NUMBER)),
    Endpoint("/plan", "What a reload of the file would change.", Plan, _plan),
    Endpoint("/spread", "How the starts of tomorrow fall.", Histogram, _spread),
    Endpoint("/audit", "Whether every promise was kept.", Audited, _audit),
    Endpoint("/run", "Start a task by hand.", Done, _ordering("run"), (TASK,), "POST"),
    Endpoint("/stop-run", "End what runs of a task.", Done, _ordering("stop"), (TASK,), "POST"),
    Endpoint("/suspend", "Let a task rest.", Done, _ordering("suspend"), (TASK, FOR, REASON),
             "POST"),
    Endpoint("/resume", "End a suspension.", Done, _ordering("resume"), (TASK,), "POST"),
    Endpoint("/reload", "Have the file read again.", Done, _ordering("reload"), (), "POST"),
)  # fmt: skip


def document() -> dict[str, Any]:
    """The OpenAPI document of all that."""
    kinds = [each.kind for each in ENDPOINTS]
    schemas, components = msgspec.json.schema_components(
        [*kinds, Refusal, Task], ref_template="#/components/schemas/{name}"
    )
    refusal = schemas[len(kinds)]
    paths: dict[str, Any] = {}
    for endpoint, schema in zip(ENDPOINTS, schemas, strict=False):
        statuses = {"400": "A parameter is wrong.", "401": "Who asks is not known.",
                    "404": "There is no such thing.", "409": "It is not possible now.",
                    "503": "The state cannot be read."}  # fmt: skip
        if endpoint.method == "POST":
            statuses["403"] = "Who asks may look, and not act."
        answers = {
            code: {"description": words, "content": {"application/json": {"schema": refusal}}}
            for code, words in statuses.items()
        }
        answers["200"] = {
            "description": endpoint.words,
            "content": {"application/json": {"schema": schema}},
        }
        paths[f"/api/v1{endpoint.path}"] = {
            endpoint.method.lower(): {
                "operationId": endpoint.path.strip("/").replace("-", "_"),
                "summary": endpoint.words,
                "parameters": [
                    {"name": each.name, "in": "query", "required": each.required,
                     "description": each.words, "schema": each.schema}
                    for each in endpoint.parameters
                ],
                "responses": answers,
            }
        }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cronpoll",
            "version": __version__,
            "description": " ".join((__doc__ or "").split()),
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


class Api:
    """Answers programs. `scene`: makes the scene of a visitor."""

    def __init__(self, scene: Callable[[Any, dict[str, str]], Scene]) -> None:
        self._scene = scene
        self._document = msgspec.json.encode(document())
        self._done: dict[tuple[str, str, str], tuple[float, Response]] = {}

    async def describe(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")

    def handler(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                return await self._answer(endpoint, request)
            except RefusedError as error:
                told = Refusal(well_formed(str(error)))
                return _json(told, error.status)

        return handle

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        visitor = request.scope["visitor"]
        given = Given(endpoint, request.query_params)
        scene = self._scene(visitor, {})
        if endpoint.method == "POST":
            return await self._order(endpoint, request, scene, given)
        if not scene.watch.ready:
            raise RefusedError(503, scene.watch.problem or "the record is being read")
        return _json(await _value(endpoint, scene, given))

    async def _order(
        self, endpoint: Endpoint, request: Request, scene: Scene, given: Given
    ) -> Response:
        if not scene.may_operate:
            raise RefusedError(403, scene.visitor.words)
        if scene.visitor.how not in ("token", "the Unix socket", "the proxy", "this machine"):
            raise RefusedError(403, "a browser orders with the forms of the page")
        if "sec-fetch-site" in request.headers:
            raise RefusedError(403, "a browser orders with the forms of the page")
        now, key = scene.now.timestamp(), request.headers.get("idempotency-key")
        self._done = {each: kept for each, kept in self._done.items() if kept[0] >= now}
        known = (scene.visitor.name, str(request.url), key or "")
        if key and known in self._done:
            return self._done[known][1]
        answer = _json(await _value(endpoint, scene, given))
        if key and len(self._done) < _KEYS:
            self._done[known] = now + TICKET_SECONDS, answer
        return answer


async def _value(endpoint: Endpoint, scene: Scene, given: Given) -> Any:
    value = endpoint.answer(scene, given)
    return await value if asyncio.iscoroutine(value) else value


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
