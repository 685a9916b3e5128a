r"""Crontabs: what a line of one means, said in the words of the registry file. Nothing is read or written here.

`translate` gives the jobs that can be expressed exactly, and for every other line its number and the reason; no line is
left out silently. The model is Vixie cron as Debian's cron and cronie have it. Where these disagree, or where a line is
an extension of some other cron, the line is reported: a schedule that is only probably right is worse than none.

**Steps, names, macros, weekday 7** are written out as lists: the strict language knows numbers and ranges only. `*` is
written for a full set and for nothing else.

**Day and weekday.** The strict language has one rule: both written other than `*` means that either suffices. Vixie's
rule looks at the *first character* of the two fields. If neither begins with `*`, either suffices; if one of them does,
both have to match, and `*/2` begins with `*`. With D the days, W the weekdays and M the months as sets, this gives:

    neither begins with "*"   D or W    one of them full (`1-31`, `0-6`, `sun-sat`, `1,*`): every day, `* *`
                                        else both are written, as restrictions: `D W`
    one begins with "*"       D and W   W full: `D *`            (`*/2 * *`, `*/40 * 0-7`)
                                        D full: `* W`            (`*/1 * mon`, `*,5 * mon`)
                                        D has every day that the months M have: `* W`  (`1-29 2 */2`)
                                        else the one that leaves less over, and the other as a constraint (`*/2 * mon`):
                                        `D *` with only = { dow = W }, or `* W` with only = { dom = D }

The last row is right: what the strict language can say about days is D', W', or their union. All days of a month that are
in D and W, with neither covering the month, are not closed under weeks, nor under months, nor a union of such sets. The
constraint looks at the wall clock of the nominal minute, hence it is exact; but a search gives up behind a thousand
minutes that are refused in a row, so a line that could have so many is reported.
A full set must not be written as `*` beside a restriction in the first row, or "every day" would become "W".

**Summer time.** Vixie cron treats a job as fixed in time if neither its minute nor its hour begins with `*`. Such a job is
not repeated when the clock is put back (`repeated_hour = "first"`); the others are (`"both"`). When the clock is put
forward, cron starts the fixed jobs of the skipped hour right after it; cronpoll does not, and `validate` names them.

**Environment lines** hold for the lines below them. They are read character by character as Vixie's `load_env` does. SHELL
runs the command, HOME is where it runs, CRON_TZ is the zone of its schedule (cronie). TZ is the command's alone: it does
not move the schedule. RANDOM_DELAY becomes a window (cronie). What a line like that says and we cannot follow (an unknown
zone) makes every job below it untranslatable, not just the line.

**Percent signs.** In a command, the first `%` that has no backslash before it ends the command; what follows is its standard
input, in which further ones are line feeds; `\%` is a percent sign in both. The two halves treat `\\%` differently, as cron
does: in the command the backslashes belong together, in the input only the last one counts. A line feed is added to input
that does not end with one. The input is handed over by `printf`, as an argument: no quoting, hence every byte arrives.
"""

from __future__ import annotations

import posixpath
import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from cronpoll.core.cron import parse
from cronpoll.core.errors import InvalidCronExpressionError, abbreviate
from cronpoll.core.registrations import DESCRIPTION_LIMIT, zone_problem

SHELL: Final = "/bin/sh"
FEED: Final = 'printf %s "$1" | "$0" -c "$2"'
"""Runs the shell `$0` on the command `$2` with `$1` as its standard input. Its status is that of the command."""

ARGUMENT_LIMIT: Final = 131_071
"""Bytes in one argument of a program: Linux takes no more."""
OLD_COMMAND_LIMIT: Final = 998
"""Characters of a command that every Vixie cron takes; beyond, some cut it off and some refuse it."""
VARIABLES_LIMIT: Final = 200
ENVIRONMENT_LIMIT: Final = 65_536
"""A job carries all variables above it, so that a file of n lines could ask for n² of them."""
DELAY_LIMIT: Final = 1_440
"""Minutes that cronie takes as RANDOM_DELAY."""
_DIGITS_LIMIT: Final = 99
_STEP_DIGITS_LIMIT: Final = 9
PROGRESS_LINES: Final = 500


class Remark(NamedTuple):
    """Something to be said about a line, which stands there as `text`."""

    line: int
    text: str
    reason: str


class Clause(NamedTuple):
    """A constraint on the days of a schedule, as the registry file has it: numbers, and ranges as text."""

    name: Literal["dow", "dom"]
    values: tuple[int | str, ...]


class Job(NamedTuple):
    """A line as a task. `cwd` None: the home of whoever runs it. `delay`: it starts up to so many minutes late."""

    line: int
    name: str
    cron: str
    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    user: str | None
    timezone: str | None
    repeated_hour: Literal["first", "both"]
    description: str
    only: Clause | None = None
    delay: int = 0


class Translation(NamedTuple):
    """A crontab, line by line. Each line is empty, a comment, a job, a setting, or untranslated.

    `settings`: the numbers of the environment lines that were followed. `notes` speak about lines that are translated.
    """

    system: bool
    jobs: list[Job]
    settings: list[int]
    untranslated: list[Remark]
    notes: list[Remark]


BLANKS: Final = re.compile(r"[ \t]+")


class UntranslatableError(Exception):
    """A line cannot be expressed; the text says why."""


def translate(
    content: bytes,
    *,
    system: bool = False,
    owner: str | None = None,
    advance: Callable[[int], None] | None = None,
) -> Translation:
    """Translate a crontab. `system`: there is a user column. `owner`: whose it is otherwise. `advance` counts lines."""
    return _Translator(system, owner).all(content, advance or (lambda _: None))


def lines_of(content: bytes) -> list[bytes]:
    """The lines without their ends; there is none behind the last line feed."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def is_idle(line: bytes) -> bool:
    """Whether a line is empty or a comment."""
    return not (bare := line.lstrip(b" \t").rstrip(b"\r")) or bare.startswith(b"#")


# -- what kind of crontab ----------------------------------------------------------------------------------------------

_WELL_KNOWN: Final = re.compile(
    "root|daemon|nobody|www-data|apache|nginx|httpd|http|postgres|mysql|redis|munin|smmsp|logcheck|amavis|clamav|debian-tor"
    "|_?ntp|uucp|git|gitlab|nagios|icinga|zabbix|asterisk|puppet|vmail|postfix"
)
"""Names that are accounts and hardly ever commands."""
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\\-]*\$?")
_HEADING: Final = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (rb"\b(?:dow|day of week)\b", rb"\buser(?:-?name)?\b", rb"\bc(?:m|omman)d\b")
)
"""In this order in a comment. One by one: a single expression would try all their combinations on a long line."""
_LINES_TO_GUESS_FROM: Final = 2_000


def guess_system(path: str, content: bytes) -> bool:
    """Whether a crontab seems to have a user column: by where it is, else by what stands in it."""
    *_, folder, name = ("", "", *posixpath.normpath(path).split("/"))
    if folder == "cron.d" or (folder, name) == ("etc", "crontab"):
        return True
    if guess_owner(path) is not None:
        return False
    known = False
    for line in lines_of(content)[:_LINES_TO_GUESS_FROM]:
        if is_idle(line):
            if _is_heading(line):
                return True
            continue
        text = line.decode("latin-1").strip(" \t\r").removeprefix("-")
        if environment_setting(text) is not None:
            continue
        column = 1 if text.startswith("@") else 5
        words = BLANKS.split(text, column + 1)
        if len(words) < column + 2 or not _ACCOUNT.fullmatch(words[column]):
            return False
        known = known or _WELL_KNOWN.fullmatch(words[column]) is not None
    return known


def _is_heading(comment: bytes) -> bool:
    at = 0
    for words in _HEADING:
        found = words.search(comment, at)
        if found is None:
            return False
        at = found.end()
    return True


def guess_owner(path: str) -> str | None:
    """Whose crontab it is, if it lies where crons keep them: there, the file is named after its owner."""
    *_, above, folder, name = ("", "", "", *posixpath.normpath(path).split("/"))
    spool = folder in ("crontabs", "tabs") or (above, folder) == ("spool", "cron")
    return name if spool and _ACCOUNT.fullmatch(name) else None


# -- the five fields ---------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day", 1, 31)
MONTH: Final = Field(
    "month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
)
WEEKDAY: Final = Field("weekday", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)

_DAY_MINUTES: Final = 1_440
_EVERY_WEEKDAY: Final = 0b111_1111
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_ELEMENT: Final = re.compile(r"(?:\*|([0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+))?)(?:/([0-9]+))?")


class Timing(NamedTuple):
    """When a line runs: an expression of the strict language and what else has to hold; whether its time of day is fixed
    in Vixie's sense; the last minute of a day at which it is due.
    """

    cron: str
    fixed: bool
    only: Clause | None
    latest: int


def timing(expression: str, *, plain_star: bool = False) -> Timing:
    """The five fields of a crontab, or a macro, in the strict language. `UntranslatableError` if they cannot be said so.

    `plain_star`: day or weekday count as unrestricted if they are `*` and nothing else; Vixie looks at the first character.
    """
    return (_short_timing if len(expression) <= 128 else _timing)(expression, plain_star)


def _timing(expression: str, plain_star: bool) -> Timing:
    texts = _MACROS.get(expression, expression).split(" ")
    assert len(texts) == len(FIELDS), "the caller has counted"
    minutes, hours, days, months, weekdays = (values_of(field, text) for field, text in zip(FIELDS, texts, strict=True))
    weekdays = (weekdays | weekdays >> 7) & _EVERY_WEEKDAY
    starred = any(text == "*" if plain_star else text.startswith("*") for text in (texts[2], texts[4]))
    day, weekday, only = _days(days, weekdays, months, starred)
    cron = " ".join((_written(minutes, MINUTE), _written(hours, HOUR), day, _written(months, MONTH), weekday))
    try:
        parse(cron)
    except InvalidCronExpressionError as error:
        raise UntranslatableError(f"the {error.details['field']} field {error.details['reason']}") from error
    latest = (hours.bit_length() - 1) * 60 + minutes.bit_length() - 1
    return Timing(cron, not texts[0].startswith("*") and not texts[1].startswith("*"), only, latest)


_short_timing = lru_cache(maxsize=4096)(_timing)


def _days(days: int, weekdays: int, months: int, starred: bool) -> tuple[str, str, Clause | None]:
    """Day and weekday as they have to be written; the table in the docstring of this file."""
    day, weekday = _written(days, DAY), _written(weekdays, WEEKDAY._replace(high=6))
    if not starred:
        return ("*", "*", None) if "*" in (day, weekday) else (day, weekday, None)
    if weekday == "*":
        return day, weekday, None
    longest = max(length for month, length in enumerate(_LENGTHS, 1) if months >> month & 1)
    of_months = ((1 << longest) - 1) << 1
    if days & of_months == of_months:
        return "*", weekday, None
    if not days & of_months:
        raise UntranslatableError("the day field names a day that never comes in these months")
    too_many_days, too_many_weekdays = _refused(days, weekdays, months)
    if too_many_days <= too_many_weekdays:
        return day, "*", Clause("dow", tuple(listed(weekdays, WEEKDAY)))
    return "*", weekday, Clause("dom", tuple(listed(days, DAY)))


@lru_cache(maxsize=1024)
def _refused(days: int, weekdays: int, months: int) -> tuple[int, int]:
    """How many days a schedule of the days alone has too many, and one of the weekdays alone.

    Over 400 years, after which the calendar repeats itself.
    """
    of_days_alone = of_weekdays_alone = 0
    for year in range(2000, 2400):
        for month in range(1, 13):
            if not months >> month & 1:
                continue
            weekday, length = monthrange(year, month)  # Monday is 0 there
            for day in range(1, length + 1):
                of_days, of_weekdays = days >> day & 1, weekdays >> (weekday + day) % 7 & 1
                of_days_alone += of_days and not of_weekdays
                of_weekdays_alone += of_weekdays and not of_days
    return of_days_alone, of_weekdays_alone


def listed(values: int, field: Field) -> Iterator[int | str]:
    """A set as a constraint of the registry file has it: numbers and, from three in a row on, ranges as text."""
    found = [value for value in range(field.low, field.high + 1) if values >> value & 1]
    begin = 0
    for index, value in enumerate(found):
        if index + 1 < len(found) and found[index + 1] == value + 1:
            continue
        run = found[begin : index + 1]
        yield from [f"{run[0]}-{run[-1]}"] if len(run) > 2 else run
        begin = index + 1


def _written(values: int, field: Field) -> str:
    """A set in the strict language: `*` if it is full, else numbers and ranges."""
    full = values.bit_count() == field.high - field.low + 1
    return "*" if full else ",".join(map(str, listed(values, field)))


def values_of(field: Field, text: str) -> int:
    """The values of a field as bits."""
    values = 0
    for element in text.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is None:
            raise UntranslatableError(_strange(field, element))
        first, last, step = match.groups()
        if first is None:
            start, end = field.low, field.high
        else:
            start = _value(field, first, element)
            end = start if last is None else _value(field, last, element)
            if step is not None and last is None:
                raise UntranslatableError(
                    f"the {field.name} field has a step after a single value ({quoted(element)}), which most crons "
                    f"refuse and the others read differently; write {first}-{field.high}/{abbreviate(step, 9)} if that is "
                    "meant"
                )
        if start > end:
            raise UntranslatableError(
                f"the {field.name} field has the range {quoted(element)}, which starts after its end; cron refuses it"
            )
        stride = 1
        if step is not None:
            digits = step.lstrip("0")
            if not digits or len(digits) > _STEP_DIGITS_LIMIT or len(step) > _DIGITS_LIMIT:
                raise UntranslatableError(f"the {field.name} field has the step {quoted(step)}; cron refuses it")
            stride = int(digits)
        for value in range(start, end + 1, stride):
            values |= 1 << value
    return values


def _value(field: Field, text: str, element: str) -> int:
    if text.isdigit():
        digits = text.lstrip("0") or "0"
        if len(digits) <= 2 and len(text) <= _DIGITS_LIMIT and field.low <= int(digits) <= field.high:
            return int(digits)
        raise UntranslatableError(
            f"the {field.name} field has the value {quoted(text)}, outside {field.low}-{field.high}"
        )
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    raise UntranslatableError(_strange(field, element))


def _strange(field: Field, element: str) -> str:
    """Why an element of a field is none."""
    what = f"the {field.name} field has {quoted(element)}"
    if not element:
        return f"the {field.name} field has an empty element in its list"
    if "~" in element:
        return f"{what}: a random value, an extension of cronie and OpenBSD"
    if element[0] == "H":
        return f"{what}: a hashed value, an extension of Jenkins"
    if element == "?" or "#" in element or re.fullmatch(r"L|LW|\d*[LW]|L-\d+", element):
        return f"{what}: an extension of Quartz that Vixie cron does not have"
    if element[0] == "*":
        return f"{what}; after * only a step such as */5 has a meaning"
    names = f" or a name ({field.names[0]} to {field.names[-1]})" if field.names else ""
    return f"{what}; expected a number from {field.low} to {field.high}{names}, a range, or *"


def quoted(text: str) -> str:
    return f'"{abbreviate(text, 40)}"'


# -- environment lines -------------------------------------------------------------------------------------------------

_SPACE: Final = " \t\n\v\f\r"
_LIKE_A_SETTING: Final = re.compile(r"""["']?[A-Za-z_][A-Za-z0-9_]*["']?\s*=""")


def environment_setting(line: str) -> tuple[str, str] | None:
    """Name and value if Vixie cron takes this line, without its leading blanks, for a setting; None if not.

    A name or value in quotes goes up to the same quote, and only white space may follow it. A name without quotes ends at
    white space or `=`; a value without quotes is the rest, without the white space at its end, and is not empty.
    """
    name, rest = _word(line, (*_SPACE, "="))
    if name is None or (line[:1] in ("'", '"') and "=" in name):
        return None
    rest = rest.lstrip(_SPACE)
    if not rest.startswith("="):
        return None
    rest = rest[1:].lstrip(_SPACE)
    if not rest:
        return None
    if rest[0] not in ("'", '"'):
        return name, rest.rstrip(_SPACE)
    value, rest = _word(rest, ())
    return None if value is None or rest.strip(_SPACE) else (name, value)


def _word(text: str, ends: tuple[str, ...]) -> tuple[str | None, str]:
    """What stands in quotes, or else before one of `ends`; and what follows. None if the quote is not closed."""
    if text[:1] in ("'", '"'):
        inside, quote, rest = text[1:].partition(text[0])
        return (inside if quote else None), rest
    end = min((at for at in map(text.find, ends) if at >= 0), default=len(text))
    return text[:end], text[end:]


def _why_no_setting(line: str) -> str:
    if not line.partition("=")[2].strip(_SPACE):
        return 'an empty value has to be written as ""; cron refuses the line as it is'
    return "looks like a setting, but its quotes are not closed or something follows them; cron refuses the line"


_MINUTES: Final = re.compile("[0-9]{1,9}")
_OF_MAIL: Final = frozenset(("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "NO_MAIL_OUTPUT"))
_OF_CRON: Final = _OF_MAIL | {"CRON_TZ", "RANDOM_DELAY"}
"""Variables with a meaning for cron. A job gets them only if its command names them."""


class _Environment:
    """The settings in force at a line, and those that could not be followed."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._size = 0
        self._plain: dict[str, str] | None = None

    def set(self, name: str, value: str) -> None:
        old = self._values.get(name)
        self._size += len(value.encode()) - (len(old.encode()) if old is not None else -len(name.encode()))
        self._values[name] = value
        self._lost.pop(name, None)
        self._plain = None

    def lose(self, name: str, line: int) -> None:
        self._lost[name] = f"its {abbreviate(name, 60)} stands in line {line}, which could not be translated"

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def check(self) -> None:
        """`UntranslatableError` if no job can be given these surroundings."""
        if self._lost:
            raise UntranslatableError(next(iter(self._lost.values())))
        if len(self._values) > VARIABLES_LIMIT or self._size > ENVIRONMENT_LIMIT:
            raise UntranslatableError(
                f"there are more than {VARIABLES_LIMIT} environment lines above it, or {ENVIRONMENT_LIMIT} bytes in them"
            )

    def for_command(self, text: str) -> dict[str, str]:
        """The variables a command gets. Jobs share the value as long as nothing changes."""
        if self._plain is None:
            self._plain = {name: value for name, value in self._values.items() if name not in _OF_CRON}
        named = {name: self._values[name] for name in sorted(_OF_CRON & self._values.keys()) if name in text}
        return self._plain | named if named else self._plain


# -- commands ----------------------------------------------------------------------------------------------------------

_COMMAND_PART: Final = re.compile(r"\\.?|%|[^\\%]+", re.DOTALL)


def split_command(text: str) -> tuple[str, str]:
    """The command of a line, and its standard input: what cron makes of percent signs and backslashes."""
    if "%" not in text:
        return text, ""
    parts: list[str] = []
    for match in _COMMAND_PART.finditer(text):
        part = match[0]
        if part == "%":
            return "".join(parts), _input(text[match.end() :])
        parts.append("%" if part == "\\%" else part)
    return "".join(parts), ""


def _input(text: str) -> str:
    """The state machine of cron's `child_process`, with its habits: a backslash at the very end asks for no line feed."""
    written: list[str] = []
    escaped = open_line = False
    for char in text:
        what = char
        if escaped:
            if char != "%":
                written.append("\\")
        elif char == "%":
            what = "\n"
        escaped = what == "\\"
        if not escaped:
            written.append(what)
            open_line = what != "\n"
    if escaped:
        written.append("\\")
    if open_line:
        written.append("\n")
    return "".join(written)


def words_of(shell: str, command: str, stdin: str) -> tuple[str, ...]:
    """The program to start: the shell as cron starts it, or, if there is input, one that feeds it."""
    return (SHELL, "-c", FEED, shell, stdin, command) if stdin else (shell, "-c", command)


# -- names -------------------------------------------------------------------------------------------------------------

_NAME_LENGTH: Final = 40
_LOOKED_AT: Final = 400
_JOINTS: Final = re.compile(r"&&|\|\||[;|&(){}\n`]|\$\(|(?:^|\s)(?:if|then|else|elif|fi|while|do|done)(?=\s|$)")
_PREPARATION: Final = re.compile(r"test|\[\[?|cd|sleep|export|\.|source|set|umask|ulimit|true|false|:|exit|perl")
_WRAPPER: Final = re.compile(
    "!|nice|ionice|chronic|timeout|flock|env|exec|eval|command|nohup|time|sudo|setsid|sh|bash|systemd-cat"
)
_QUOTES: Final = re.compile(r"""'[^']*'|"[^"]*\"""")
_REDIRECTION: Final = re.compile(r"[0-9&]*(?:>>?|<)[&|]?\s*[^\s;&|()]+")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_NO_WORD: Final = re.compile(r"-.*|[\d.]+[smhd]?|\d*[<>].*|[$\"'].*")
_EXTENSION: Final = re.compile(r"\.(?:sh|bash|py|pl|php|rb|js)$")


def slug(command: str) -> str:
    """A readable name from a command: its program, and what follows that is no option."""
    begin = command[:_LOOKED_AT]
    # First without what stands in quotes, which is seldom the program; else as if there were none (sh -c "...").
    return _slug_in(_QUOTES.sub("''", begin)) or _slug_in(re.sub("[\"']", " ", begin)) or "task"


def _slug_in(command: str) -> str:
    fallback = ""
    for segment in _JOINTS.split(_REDIRECTION.sub(" ", command)):
        words = segment.split()
        while words and (_ASSIGNMENT.fullmatch(words[0]) or _WRAPPER.fullmatch(posixpath.basename(words[0]))):
            wrapper = not _ASSIGNMENT.fullmatch(words.pop(0))
            while wrapper and words and _NO_WORD.fullmatch(words[0]):
                words.pop(0)
        if not words or _NO_WORD.fullmatch(words[0]):
            continue
        name = _slug_of(words)
        if name and not _PREPARATION.fullmatch(posixpath.basename(words[0])):
            return name
        fallback = fallback or name
    return fallback


def _slug_of(words: list[str]) -> str:
    parts = [words[0], *(word for word in words[1:] if not _NO_WORD.fullmatch(word))][:3]
    found: list[str] = []
    for word in parts:
        part = re.sub(r"[\W_]+", "-", _EXTENSION.sub("", posixpath.basename(word.rstrip("/"))).lower()).strip("-")
        if found and len("-".join([*found, part])) > _NAME_LENGTH:
            break
        if part and part not in found:
            found.append(part)
    return "-".join(found)[:_NAME_LENGTH].strip("-")


class Names:
    """Hands out each name once, and none that is used already."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = set(used)
        self._counts: dict[str, int] = {}

    def unique(self, name: str) -> str:
        candidate, count = name, self._counts.get(name, 1)
        while candidate in self._used:
            count += 1
            candidate = f"{name}-{count}"
        self._counts[name] = count
        self._used.add(candidate)
        return candidate


# -- line by line ------------------------------------------------------------------------------------------------------


class _Translator:
    def __init__(self, system: bool, owner: str | None) -> None:
        self._system = system
        self._owner = owner
        self._environment = _Environment()
        self._names = Names()
        self._result = Translation(system, [], [], [], [])
        self._carriage_returns = False

    def all(self, content: bytes, advance: Callable[[int], None]) -> Translation:
        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
            self._note(1, "", "the byte order mark at the beginning is left out; cron would refuse this line")
        lines = lines_of(content)
        for number, raw in enumerate(lines, 1):
            self._line(number, raw)
            if number % PROGRESS_LINES == 0:
                advance(PROGRESS_LINES)
        if lines and not content.endswith(b"\n") and not is_idle(lines[-1]):
            self._note(len(lines), shown_as(lines[-1]), "has no line feed at its end; cron would ignore the line")
        return self._result

    def _note(self, number: int, text: str, reason: str) -> None:
        self._result.notes.append(Remark(number, text, reason))

    def _report(self, number: int, text: str, reason: str) -> None:
        self._result.untranslated.append(Remark(number, text, reason))

    def _line(self, number: int, raw: bytes) -> None:
        if raw.endswith(b"\r"):
            raw = raw[:-1]
            if not self._carriage_returns:
                self._carriage_returns = True
                self._note(
                    number,
                    shown_as(raw),
                    "ends with CR LF; the CR is left out everywhere, cron would hand it to the shell",
                )
        if is_idle(raw):
            if b"\r" in raw:
                self._note(
                    number, shown_as(raw), "has a carriage return in a comment; cron, too, takes it all as comment"
                )
            return
        shown = shown_as(raw)
        try:
            text = raw.decode().lstrip(" \t")
            problem = "contains the character NUL" if "\0" in text else None
        except UnicodeDecodeError as error:
            text = raw.decode("latin-1").lstrip(" \t")
            problem = f"is not valid UTF-8 (byte 0x{raw[error.start]:02x}), and a registry file has to be"
        setting = environment_setting(text)
        if problem is not None:
            self._report(number, shown, problem)
            if setting is not None:
                self._environment.lose(setting[0], number)
        elif setting is not None:
            self._setting(number, shown, *setting)
        else:
            try:
                self._result.jobs.append(self._job(number, text, shown))
            except UntranslatableError as error:
                self._report(number, shown, str(error))

    # Settings.

    def _setting(self, number: int, shown: str, name: str, value: str) -> None:
        problem = self._problem_of(name, value)
        if problem is not None:
            self._report(number, shown, problem)
            if name == "RANDOM_DELAY":
                self._environment.set(name, "0")
            elif name:
                self._environment.lose(name, number)
            return
        self._result.settings.append(number)
        for reason in self._notes_on(name, value):
            self._note(number, shown, reason)
        if name != "LOGNAME":
            self._environment.set(name, value)

    @staticmethod
    def _problem_of(name: str, value: str) -> str | None:
        if not name:
            return "a setting without a name"
        if name == "CRON_TZ" and value and (reason := zone_problem(_zone_name(value))):
            return f"CRON_TZ: {quoted(value)} is {reason}"
        if name == "SHELL" and not value.startswith("/"):
            return f"SHELL: {quoted(value)} is not an absolute path, and cron could not start it"
        if name == "HOME" and not value.startswith("/"):
            return f"HOME: {quoted(value)} is not an absolute path, and cron could not begin there"
        if name == "RANDOM_DELAY" and (not _MINUTES.fullmatch(value) or int(value) > DELAY_LIMIT):
            return (
                f"RANDOM_DELAY: {quoted(value)} is not a number of minutes from 0 to {DELAY_LIMIT}; cronie does not delay "
                "the jobs below it then, and nor do we"
            )
        return None

    @staticmethod
    def _notes_on(name: str, value: str) -> Iterator[str]:
        if name in _OF_MAIL and value:
            yield f"{name}: nobody is mailed; what a task prints is in the log of the daemon"
        elif name == "TZ":
            yield "TZ: holds for the commands below, as in cron; the times are those of the host's zone (see CRON_TZ)"
        elif name == "LOGNAME":
            yield "LOGNAME: left out; cron sets it to the user's name whatever is written"
        elif name == "USER":
            yield "USER: kept; Debian's cron follows it, cronie sets it to the user's name whatever is written"
        elif name == "RANDOM_DELAY" and int(value):
            yield (
                f"RANDOM_DELAY: became a window of {int(value)} minutes after each due minute; where in it a task starts "
                "is not chance but computed, the same on every start of the daemon; Debian's cron ignores it"
            )
        elif name == "CRON_TZ" and value:
            yield "CRON_TZ: became the timezone of the tasks below, as in cronie; Debian's cron ignores it"

    # Jobs.

    def _job(self, number: int, text: str, shown: str) -> Job:
        expression, rest = self._fields(number, text, shown)
        user, rest = self._user(rest)
        when = timing(expression)
        if rest.startswith("*"):
            raise UntranslatableError('the command begins with "*"; cron takes that for one field too many')
        if re.match(r"-[a-z]+[ \t]", rest):
            raise UntranslatableError("the command begins with an option, an extension of BSD crons")
        command, stdin = split_command(rest)
        if max(len(command.encode()), len(stdin.encode())) > ARGUMENT_LIMIT:
            raise UntranslatableError(
                f"the command is longer than {ARGUMENT_LIMIT} bytes, which no program can be started with"
            )
        if len(rest) > OLD_COMMAND_LIMIT:
            self._note(
                number, shown, f"has a command of more than {OLD_COMMAND_LIMIT} characters; not every cron takes it"
            )
        self._environment.check()
        zone = self._environment.get("CRON_TZ")
        delay = int(self._environment.get("RANDOM_DELAY") or 0)
        if when.only is not None:
            if when.latest + delay >= _DAY_MINUTES:
                raise UntranslatableError(
                    "day and weekday have to match both, because one of them begins with *, and a RANDOM_DELAY that can "
                    "pass midnight would change whether they do"
                )
            self._note(
                number,
                shown,
                "day and weekday have to match both, because one of them begins with *; the other days of the schedule are "
                "refused by its only, and recorded as unschedulable",
            )
        return Job(
            number,
            self._names.unique(slug(command)),
            when.cron,
            words_of(self._environment.get("SHELL") or SHELL, command, stdin),
            self._environment.for_command(command),
            self._environment.get("HOME"),
            user,
            _zone_name(zone) if zone else None,
            "first" if when.fixed else "both",
            abbreviate(text.rstrip(), DESCRIPTION_LIMIT - 100),
            when.only,
            delay,
        )

    def _fields(self, number: int, text: str, shown: str) -> tuple[str, str]:
        """The schedule of a line and what follows it."""
        if text.startswith("-"):
            self._note(number, shown, 'the "-" at its beginning is left out: it keeps cron from logging the start')
            text = text[1:]
        if text.startswith("@"):
            macro, rest = next_word(text)
            if macro == "@reboot":
                raise UntranslatableError("@reboot: there is no schedule for the start of the machine")
            if macro not in _MACROS:
                hint = " (macros are written in lower case)" if macro.lower() in _MACROS else ""
                known = ", ".join(_MACROS)
                raise UntranslatableError(f"{quoted(macro)} is not among the macros of Vixie cron: {known}{hint}")
            if not rest:
                raise UntranslatableError("there is no command after the macro")
            return macro, rest
        if _LIKE_A_SETTING.match(text):
            raise UntranslatableError(_why_no_setting(text))
        fields: list[str] = []
        rest = text
        while rest and len(fields) < len(FIELDS):
            field, rest = next_word(rest)
            fields.append(field)
            if len(fields) == 1:
                values_of(MINUTE, field)  # what does not begin like a schedule is told so, not that fields are missing
        if not rest:
            raise UntranslatableError(f"expected five fields and a command, found {len(fields)} words")
        return " ".join(fields), rest

    def _user(self, rest: str) -> tuple[str | None, str]:
        if not self._system:
            return self._owner, rest
        user, command = next_word(rest)
        if not _ACCOUNT.fullmatch(user):
            more = "; a group or login class is an extension of FreeBSD" if re.search(r"^[\w-]+[:/]", user) else ""
            raise UntranslatableError(f"expected a user in the sixth column, found {quoted(user)}{more}")
        if not command:
            raise UntranslatableError(f"there is no command after the user {quoted(user)}")
        return user, command


def next_word(text: str) -> tuple[str, str]:
    """The first word of a text, and the rest from its next word on, blanks at its end included."""
    match = BLANKS.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.end() :])


def _zone_name(value: str) -> str:
    return value.removeprefix(":")  # POSIX: what follows is the name of a file, as without


def shown_as(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
