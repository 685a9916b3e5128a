"""The sentences of the page: what a task needs, and how everything is, in one line.

A sentence never claims more than the record says. Reasons come from events and from
`core.reasons`; here they are put beside the task.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cronpoll.core.reasons import how_many
from cronpoll.core.text import count, listed
from cronpoll.core.view import Task
from cronpoll.web.face import Face, length
from cronpoll.web.html import Html, esc, joined, tag
from cronpoll.web.scene import Scene, task_href

SLOW: Final = 1.8
"""A run that takes so many times as long as usual is slow."""
LONG_SUSPENDED: Final = timedelta(days=7)
_GRACE: Final = timedelta(seconds=90)
"""What is owed for less than this is about to start."""

KINDS: Final = (
    "failing",
    "quarantined",
    "overdue",
    "held",
    "interrupted",
    "missed",
    "slow",
    "suspended",
)
"""Why a task needs attention, the most urgent first."""
_ORDER: Final = {kind: index for index, kind in enumerate(KINDS)}


class Need(NamedTuple):
    """Why a task needs attention: `fact` in one sentence, `reason` in the next."""

    kind: str
    task: Task
    label: str
    fact: str
    reason: str
    when: datetime | None
    beside: Html


def state_words(scene: Scene, task: Task) -> tuple[str, str]:
    """The glyph of a task, and its state in a word."""
    if is_overdue(scene, task):
        return ("overdue" if task.state in ("running", "ok", "new") else task.state), (
            f"{task.state}, overdue" if task.state != "ok" else "overdue"
        )
    return task.state, task.state


def is_overdue(scene: Scene, task: Task) -> bool:
    return task.owed_since is not None and scene.now - task.owed_since > _GRACE


def needs_of(scene: Scene) -> list[tuple[str, Task]]:
    """Every task that needs attention, and what kind of it, in the order of urgency. Only those
    are asked that are not simply fine."""
    tasks, missed = scene.tasks, scene.watch.troubles.missed
    asked = {**scene.watch.board.unquiet, **dict.fromkeys(missed)}
    found = [
        (_ORDER[kind], name, kind, tasks[name])
        for name in asked
        if name in tasks and (kind := kind_of(scene, tasks[name])) is not None
    ]
    return [(kind, task) for _, _, kind, task in sorted(found, key=lambda each: each[:2])]


def kind_of(scene: Scene, task: Task) -> str | None:
    """Why a task needs attention, in a word; None if it is fine."""
    state = task.state
    if state in ("failing", "quarantined"):
        return state
    if state == "suspended":
        since = suspended_since(scene, task)
        return None if since is None or scene.now - since < LONG_SUSPENDED else state
    if state == "held":
        return state
    if is_overdue(scene, task):
        return "overdue"
    if state == "interrupted":
        return state
    if state == "running":
        return "slow" if _is_slow(scene, task) else None
    return "missed" if task.task in scene.watch.troubles.missed else None


def need_of(scene: Scene, task: Task) -> Need | None:
    """What a task needs attention for; None if it is fine."""
    kind = kind_of(scene, task)
    return None if kind is None else _NEEDS[kind](scene, task)


def next_words(scene: Scene, task: Task) -> tuple[datetime | None, Html]:
    """What comes next of a task, and a countdown to it."""
    face = scene.face
    if task.owed_since is not None:
        beside = (
            face.since(task.owed_since, "overdue by")
            if is_overdue(scene, task)
            else Html("due now")
        )
        return task.owed_since, beside
    if task.retry_at is not None and (task.next_run is None or task.retry_at < task.next_run):
        return task.retry_at, face.until(task.retry_at, "next attempt in")
    if task.next_run is None:
        return None, esc("nothing is due")
    return task.next_run, face.until(task.next_run, "next, in")


def _failing(scene: Scene, task: Task) -> Need:
    error = task.last_error or "no reason was given"
    failed = _failures(scene, task)
    fact = (
        f"{_capital(error)}."
        if failed == 1
        else f"{number_words(failed)} attempts failed: {error}."
    )
    trouble = scene.watch.book.tasks[task.task].trouble
    since = (None if trouble is None else trouble.since) or task.last_failure or scene.now
    label = f"failing since {scene.face.plain(since, seconds=False)}"
    return Need("failing", task, label, fact, _last_line(scene, task), *next_words(scene, task))


def _failures(scene: Scene, task: Task) -> int:
    """Attempts in a row that failed until now."""
    past = scene.watch.pasts.get(task.task)
    number = 0
    for run in reversed(past.attempts if past is not None else ()):
        if run.outcome != "failed":
            break
        number += 1
    return max(number, 1)


def _last_line(scene: Scene, task: Task) -> str:
    """The last thing that a failed run printed."""
    past = scene.watch.pasts.get(task.task)
    if past is None or not past.attempts:
        return ""
    lines = past.attempts[-1].output
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or list(lines) or [""])[-1]


def _quarantined(scene: Scene, task: Task) -> Need:
    state, until = scene.watch.book.tasks[task.task], task.quarantined_until or scene.now
    fact = f"{number_words(state.deaths)} daemons in a row died with it."
    reason = "It is held back for longer each time, so that it does not take the others along."
    beside = scene.face.until(until, "starts again in")
    return Need("quarantined", task, "quarantined", fact, reason, until, beside)


def _overdue(scene: Scene, task: Task) -> Need:
    face, owed = scene.face, task.owed_since
    usual = scene.watch.tally.usual(task.task)
    if not scene.watch.daemon.alive:
        fact, reason = "The daemon is not running.", "It is owed a start when the daemon starts."
    elif task.state == "held":
        fact = "Something of an earlier run is still there."
        reason = "Nothing of it starts before that has ended."
    elif task.running_since is not None:
        ran = length((scene.now - task.running_since).total_seconds())
        fact = f"Running for {ran}" + (f", usually {length(usual)}." if usual else ".")
        owed_text = "" if owed is None else face.plain(owed, seconds=False)
        reason = f"The minute {owed_text} is owed directly after this run." if owed_text else ""
    else:
        fact, reason = "It is owed a start, and has not been started.", ""
    kind = "held" if task.state == "held" else "overdue"
    label = "held, overdue" if kind == "held" and is_overdue(scene, task) else kind
    if task.state == "running":
        label = "running, overdue"
    return Need(kind, task, label, fact, reason, *next_words(scene, task))


def _interrupted(scene: Scene, task: Task) -> Need:
    state = scene.watch.book.tasks[task.task]
    began = state.started_at
    at = "" if began is None else f", which began {scene.face.plain(began)},"
    fact = f"Its last run{at} was cut off."
    restart = state.config.options.interrupted == "restart"
    if state.runs and all(run.manual for run in state.runs):
        reason = "It was started by hand, and is not started again."
        return Need("interrupted", task, "interrupted", fact, reason, *next_words(scene, task))
    reason = (
        "It is started again as soon as the daemon can."
        if restart
        else 'interrupted = "abandon": it is not started again, a person decides.'
    )
    return Need("interrupted", task, "interrupted", fact, reason, *next_words(scene, task))


def _is_slow(scene: Scene, task: Task) -> bool:
    usual, since = scene.watch.tally.usual(task.task), task.running_since
    if usual is None or since is None:
        return False
    return (scene.now - since).total_seconds() >= max(SLOW * usual, usual + 60)


def _slow(scene: Scene, task: Task) -> Need:
    usual, since = scene.watch.tally.usual(task.task) or 0.0, task.running_since or scene.now
    ran = (scene.now - since).total_seconds()
    fact = f"Running for {length(ran)}, usually {length(usual)}."
    return Need("slow", task, "slow", fact, "", *next_words(scene, task))


def _missed(scene: Scene, task: Task) -> Need:
    event = scene.watch.troubles.missed[task.task]
    last = scene.face.plain(event.last_missed, seconds=False)
    minutes = "1 due minute" if event.count == 1 else f"{how_many(event.count)} due minutes"
    fact = f"{minutes} got no start, the last one {last}."
    reason = f"{_capital(event.reason)}."
    return Need("missed", task, "missed", fact, reason, *next_words(scene, task))


def _suspended(scene: Scene, task: Task) -> Need:
    since = suspended_since(scene, task) or scene.now
    said = task.suspension
    by = "Suspended by the file" if task.suspended_by == ("file",) else "Suspended"
    if said is not None and said.ordered_by is not None:
        by += f" by {said.ordered_by}"
    fact = f"{by} since {scene.face.date(since)}."
    told = f"“{said.reason}”. " if said is not None and said.reason else ""
    reason = f"{told}Nothing of it starts, and nothing is made up for later."
    label = f"suspended {count((scene.now - since).days, 'day')}"
    return Need("suspended", task, label, fact, reason, None, esc("nothing until it is resumed"))


_NEEDS: Final[dict[str, Callable[[Scene, Task], Need]]] = {
    "failing": _failing,
    "quarantined": _quarantined,
    "overdue": _overdue,
    "held": _overdue,
    "interrupted": _interrupted,
    "missed": _missed,
    "slow": _slow,
    "suspended": _suspended,
}


def suspended_since(scene: Scene, task: Task) -> datetime | None:
    """When the present suspension began, as far as the record in memory tells."""
    return scene.watch.troubles.suspended.get(task.task)


# -- the whole -------------------------------------------------------------------------------------


def overview_sentence(scene: Scene, needs: list[tuple[str, Task]]) -> tuple[Html, str]:
    """The answer of the overview, and the line below it."""
    watch, face = scene.watch, scene.face
    total = len(scene.tasks)
    if watch.problem is not None:
        return esc(watch.problem), ""
    if not watch.daemon.alive:
        return _dead(scene)
    by_kind: dict[str, list[Task]] = {}
    for kind, task in needs:
        by_kind.setdefault(kind, []).append(task)
    fine = total - len(needs)
    below = (
        f"{fine:,} of {count(total, 'task')} {'is' if fine == 1 else 'are'} fine.{_was_down(scene)}"
    )
    if watch.daemon.silent:
        return Html("The daemon does not answer."), "It holds the state directory. " + below
    if watch.daemon.degraded:
        why = watch.daemon.degraded_by or "the disk refuses"
        return Html("Nothing starts: state cannot be written."), f"{_capital(why)}. {below}"
    if watch.daemon.clock is not None:
        return Html("Nothing due starts: the clock is not believed."), below
    trouble = _trouble(scene)
    if trouble:
        clauses = [_clause(kind, by_kind[kind]) for kind in ("failing", "quarantined", "overdue")
                   if kind in by_kind]  # fmt: skip
        why = "" if watch.daemon.rejected is None else f"{_capital(watch.daemon.rejected.reason)}. "
        return joined([trouble, " ", *clauses[:1]]), f"{why}{below}"
    if not needs:
        coming = [task.next_run for task in scene.tasks.values() if task.next_run is not None]
        first = f" The next start is at {face.plain(min(coming))}." if coming else ""
        return Html("Everything is fine."), f"{count(total, 'task')}.{_was_down(scene)}{first}"
    urgent: list[str] = [
        kind for kind in ("failing", "quarantined", "overdue", "held") if kind in by_kind
    ]
    kinds = urgent or list(by_kind)
    return joined([_clause(kind, by_kind[kind]) for kind in kinds[:2]]), below


def _trouble(scene: Scene) -> str:
    """What is wrong beside the tasks: nobody may read that everything is fine."""
    daemon = scene.watch.daemon
    if daemon.rejected is not None:
        return "The file was rejected: what was accepted before is in force."
    if daemon.targets_down:
        names = [f"notify.{down.target}" for down in daemon.targets_down]
        said = (
            names[0]
            if len(names) == 1
            else count(len(names), "target of notifications", "targets of notifications")
        )
        return f"{said} {'takes' if len(names) == 1 else 'take'} no notifications."
    return ""


def _was_down(scene: Scene) -> str:
    """The longest time of the last day in which there was no daemon."""
    face, since = scene.face, scene.now - timedelta(days=1)
    downs = [each for each in scene.watch.incidents.all if each.kind == "down" and each.end > since]
    if not downs:
        return ""
    longest = max(downs, key=lambda each: each.end - each.begin)
    lasted = length((longest.end - longest.begin).total_seconds())
    span = f"from {face.plain(longest.begin, seconds=False)} to {face.clock_words(longest.end)}"
    return f" The daemon was down for {lasted}, {span}."


_VERB: Final = {"missed": ("missed its last period", "missed their last periods")}


def _clause(kind: str, tasks: list[Task]) -> Html:
    """`a is failing. ` or `12 tasks are failing. `"""
    colour = "bad" if kind == "failing" else "warn"
    one, many = _VERB.get(kind, (f"is {kind}", f"are {kind}"))
    if len(tasks) > 3:
        return Html(f"{len(tasks):,} tasks {many}. ")
    names = [
        tag("a", task.task, href=task_href(task.task), class_=f"name {colour}") for task in tasks
    ]
    return Html(f"{listed(names)} {one if len(tasks) == 1 else many}. ")


def _dead(scene: Scene) -> tuple[Html, str]:
    owed = sum(scene.tasks[name].owed_since is not None for name in scene.watch.board.unquiet)
    last = scene.watch.last_alive
    since = "" if last is None else f" since {scene.face.plain(last)}, or shortly after"
    text = f"The daemon has not been running{since}." if since else "The daemon is not running."
    below = (
        f"{count(owed, 'task is', 'tasks are')} owed a start." if owed else "Nothing is owed yet."
    )
    return esc(text), below


def health(scene: Scene) -> list[tuple[bool, str, str]]:
    """The health line: whether it is fine, a word, and the rest."""
    watch, face = scene.watch, scene.face
    daemon = watch.daemon
    if not daemon.alive:
        return [(False, "Daemon", "not running"), *_record_health(scene)]
    up = "" if daemon.since is None else f"up {length((scene.now - daemon.since).total_seconds())}"
    starts = watch.incidents.starts_since(_midnight(face))
    if daemon.silent:
        first = (False, "Daemon", "does not answer")
    elif starts > 1:
        first = (False, "Daemon", f"{up}, {_ordinal(starts)} start since midnight")
    else:
        first = (True, "Daemon", up or "alive")
    found = [first, *_record_health(scene)]
    if daemon.config is not None:
        if daemon.rejected is not None:
            since = face.plain(daemon.rejected.since)
            found.append((False, "File", f"rejected since {since}"))
        else:
            found.append((True, "File", f"accepted, {count(len(scene.tasks), 'task')}"))
    found.append(
        (True, "Clock", "believed") if daemon.clock is None else (False, "Clock", "not believed")
    )
    for down in daemon.targets_down:
        since, waiting = face.plain(down.since), count(down.waiting, "notice")
        words = f"takes nothing since {since}: {down.error}; {waiting} waiting"
        found.append((False, f"notify.{down.target}", words))
    return found


def _record_health(scene: Scene) -> list[tuple[bool, str, str]]:
    daemon = scene.watch.daemon
    if scene.watch.problem is not None:
        return [(False, "Journal", "cannot be read")]
    if daemon.degraded:
        return [(False, "Journal", "cannot be written")]
    if daemon.slow_write is not None:
        took = length(daemon.slow_write.duration_ms / 1_000)
        at = scene.face.plain(daemon.slow_write.at)
        return [(False, "Journal", f"a write took {took} at {at}")]
    return [(True, "Journal", "durable" if daemon.alive else "intact")]


def _midnight(face: Face) -> datetime:
    return face.local(face.now).replace(hour=0, minute=0, second=0, microsecond=0)


_NUMBERS: Final = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip
_ORDINALS: Final = (
    "", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    "tenth",
)  # fmt: skip


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def number_words(number: int) -> str:
    """A number at the beginning of a sentence."""
    return _capital(_number(number))


def _ordinal(number: int) -> str:
    return _ORDINALS[number] if number < len(_ORDINALS) else f"{number}th"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
