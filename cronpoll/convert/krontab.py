r"""Krontabs: what a line of Kron's one-line syntax means, in the words of the registry file.
Nothing is read or written here.

    0 0 * * * @tz(UTC) @win(after,3h) @dist(skewEarly,shape=2) @seed(daily,salt=x)
    @policy(concurrency=forbid,deadline=10m)
              @only(hours=9-17;dow=MON-FRI) @avoid(dates=2026-12-24..2026-12-31) name=backup
              command="/usr/bin/backup --full"

`translate` gives the tasks that can be expressed exactly, and for every other line its number and
all that is wrong with it. A line is translated as a whole or not at all: a directive that is left
out would change when or how often it runs.

The syntax is that of Kron's SYNTAX.md and KRONTAB.md; values are checked by what reads them in a
registry file. It is taken wider where that leaves no doubt: `,`, `;` and blanks all separate
parameters, directives may stand behind fields, values may be in single quotes, constraints may be
lists with steps, a command without quotes may be followed by its arguments.

**Where Kron's texts and krond disagree**, this is what we do:

- Day and weekday: either suffices, unless one is `*`. krond does that for `*/2`, too, where Vixie
cron would ask for both.
- Concurrency that is not given: krond allows (SYNTAX.md: forbid). It is written once, in
[defaults].
- Deadline that is not given: 0 seconds, hence what is not started in its chosen second is missed,
as SPEC.md says (krond takes
  it for none). A second is long enough for a daemon that waits for it, and a start after a downtime
  would be wrong.
- Quotes inside of a command that no shell reads: KRONTAB.md groups words by them, krond does not.
Reported.

**Identity.** Kron hashes `path of the file:name`, we hash the name of the task. A task has to be
named like that to be started in the very seconds that Kron chose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cronpoll.convert.commands import SHELL
from cronpoll.convert.kronline import ORDER, Line
from cronpoll.convert.lines import (
    PROGRESS_LINES,
    Remark,
    is_idle,
    lines_of,
    shown_as,
)
from cronpoll.convert.names import Names, slug
from cronpoll.core.dialect import quoted

DEFAULTS: Final = (
    ('timezone = "UTC"', "Kron's zone where a line has no @tz"),
    (
        'concurrency = "allow"',
        "as krond does where a line does not say; Kron's SYNTAX.md says forbid",
    ),
    (
        'deadline = "0s"',
        "what does not start in its chosen second is missed; give it more to make up for delays",
    ),
    ('interrupted = "abandon"', "Kron does not start again what a crash has ended,"),
    ("retry = { max_attempts = 1 }", "nor try again what failed"),
)
"""What Kron does where a line says nothing, each with what a reader has to know about it."""


_PROBLEMS_TOLD: Final = 20
"""Of one line; whoever has more is not helped by reading all of them."""


class Job(NamedTuple):
    """A line as a [[task]]; what is the default of the file is not in it."""

    line: int
    table: dict[str, Any]


class Translation(NamedTuple):
    """A krontab, line by line. Each line is empty, a comment, a job, or untranslated. `notes` speak
    about jobs."""

    jobs: list[Job]
    untranslated: list[Remark]
    notes: list[Remark]


def translate(content: bytes, advance: Callable[[int], None] = lambda _: None) -> Translation:
    """Translate a krontab. `advance` counts lines."""
    return _Translator().all(content, advance)


class _Translator:
    def __init__(self) -> None:
        self._result = Translation([], [], [])
        self._lines: dict[str, int] = {}
        self._carriage_returns = False

    def all(self, content: bytes, advance: Callable[[int], None]) -> Translation:
        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
            self._result.notes.append(
                Remark(1, "", "the byte order mark at the beginning is left out")
            )
        nameless: list[tuple[int, str]] = []
        for number, raw in enumerate(lines_of(content), 1):
            self._line(number, raw.removesuffix(b"\r"), nameless)
            if raw.endswith(b"\r") and not self._carriage_returns:
                self._carriage_returns = True
                self._result.notes.append(
                    Remark(
                        number, shown_as(raw[:-1]), "ends with CR LF; the CR is left out everywhere"
                    )
                )
            if number % PROGRESS_LINES == 0:
                advance(PROGRESS_LINES)
        self._name(nameless)
        return self._result

    def _line(self, number: int, raw: bytes, nameless: list[tuple[int, str]]) -> None:
        if is_idle(raw):
            return
        shown = shown_as(raw)
        try:
            text = raw.decode().strip(" \t\r")
        except UnicodeDecodeError as error:
            problem = (
                f"is not valid UTF-8 (byte 0x{raw[error.start]:02x}), and a registry file has to be"
            )
            self._result.untranslated.append(Remark(number, shown, problem))
            return
        if "\0" in text:
            self._result.untranslated.append(Remark(number, shown, "contains the character NUL"))
            return
        line = Line(text)
        name = line.table.get("name")
        if name is not None:
            first = self._lines.setdefault(name, number)
            if first != number:
                line.problems[f"the name {quoted(name)} is already used in line {first}"] = None
        if line.problems:
            told = list(line.problems)[:_PROBLEMS_TOLD]
            if len(line.problems) > len(told):
                told.append(f"and {len(line.problems) - len(told)} more")
            self._result.untranslated.append(Remark(number, shown, "; ".join(told)))
            return
        if name is None:
            nameless.append((len(self._result.jobs), shown))
        table = {"name": "", **line.table}
        self._result.jobs.append(Job(number, {key: table[key] for key in ORDER if key in table}))
        self._result.notes.extend(Remark(number, shown, note) for note in line.notes)

    def _name(self, nameless: list[tuple[int, str]]) -> None:
        """Name the tasks without name, when all names that are taken are known."""
        names = Names(self._lines)
        for index, shown in nameless:
            job = self._result.jobs[index]
            command = job.table["command"]
            name = names.unique(
                slug(command[-1] if command[:2] == [SHELL, "-c"] else " ".join(command))
            )
            job.table["name"] = name
            reason = f"has no name, which Kron asks for; the task is called {quoted(name)}"
            self._result.notes.append(Remark(job.line, shown, reason))
