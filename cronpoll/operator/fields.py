"""The fields of a KronJob: one table, from which everything that has to know them is made.

Made from it: the schema of the CustomResourceDefinition with its CEL rules, the check of a manifest
without an API server (`kronjob`), and the table in the manual. A rule stands here twice, in CEL and
in Python, because an API server and a command on a laptop have to refuse the same; a test asks
both.

Words are those of a registry file. Only what a CronJob has already is called as it is there
(`concurrencyPolicy`, `startingDeadlineSeconds`, `timeZone`, `jobTemplate`, history limits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from cronpoll.core.cron import BOUNDS, parse
from cronpoll.core.errors import InvalidCronExpressionError
from cronpoll.core.options import CatchUp, RepeatedHour
from cronpoll.core.periods import (
    RATE_LIMIT,
    SHAPE_LIMIT,
    WINDOW_LIMIT,
    Direction,
    Middle,
    Mode,
    Shape,
    Strategy,
)

GROUP: Final = "cronpoll.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KronJob"
PLURAL: Final = "kronjobs"
FIELD_MANAGER: Final = "kron-operator"

NAME_LIMIT: Final = 52
"""Of a KronJob: a Job is called after it, with a dash and the minutes since 1970."""
SCHEDULE_LIMIT: Final = 512
"""Characters. A CEL rule has to be bounded; no schedule for people comes near."""
CONCURRENCY: Final = {"Queue": "queue", "Allow": "allow", "Forbid": "forbid", "Replace": "replace"}

Schema = dict[str, Any]


class Rule(NamedTuple):
    """What the schema alone cannot say. `text`: a CEL expression that makes the message, or the
    message itself; `check`: the same rule in Python, the message or None."""

    cel: str
    message: str
    check: Callable[[Any], str | None]
    message_cel: str = ""


class Field(NamedTuple):
    name: str
    schema: Schema
    help: str
    otherwise: str = ""
    required: bool = False


# -- the schedule ----------------------------------------------------------------------------------

_WORDS: Final = "self.findAll('[^ \\t]+')"


def _number_pattern(low: int, high: int) -> str:
    """A number from low to high in decimal digits, leading zeros allowed."""
    return "0*(?:" + "|".join(str(value) for value in range(high, low - 1, -1)) + ")"


def _field_rule(index: int) -> Rule:
    name, low, high = BOUNDS[index]
    number = _number_pattern(low, high)
    element = f"{number}(?:-{number})?"
    word = f"{_WORDS}[{index}]"
    ranges = (
        f"{word}.split(',').all(e, !e.contains('-') || "
        "int(e.split('-')[0]) <= int(e.split('-')[1]))"
    )
    cel = (
        f"{_WORDS}.size() != 5 || {word} == '*' || "
        f"({word}.matches('^{element}(?:,{element})*$') && {ranges})"
    )
    expected = f"expected numbers from {low} to {high}, ranges of them, or * alone"
    text = f"Invalid cron expression: {name} field has something else; {expected}"
    message = (
        f"'Invalid cron expression \"' + self + '\": {name} field has \"' + {word} + '\"; "
        f"{expected}'"
    )
    return Rule(cel, text, lambda value: _cron_problem(value, name), message)


def _cron_problem(value: Any, field: str) -> str | None:
    try:
        parse(value)
    except InvalidCronExpressionError as error:
        return error.message if error.details["field"] == field else None
    return None


_FIVE: Final = (
    "Invalid cron expression: must have exactly 5 fields (minute hour day month weekday) "
    "separated by blanks"
)
SCHEDULE_RULES: Final = (
    Rule(f"{_WORDS}.size() == 5", _FIVE, lambda value: _cron_problem(value, "expression")),
    *(_field_rule(index) for index in range(5)),
)

# -- parts of a window -----------------------------------------------------------------------------

_DURATION: Final[Schema] = {
    "type": "string",
    "maxLength": 40,
    "pattern": r"^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}(\.[0-9]{1,6})?s)?$",
    "minLength": 2,
}


def _choice(words: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(words)}


def _entries(low: int, high: int) -> Schema:
    """Numbers, or ranges of them as text."""
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "x-kubernetes-int-or-string": True,
            "minimum": low,
            "maximum": high,
            "pattern": "^[0-9]{1,2}-[0-9]{1,2}$",
        },
    }


def _texts(pattern: str) -> Schema:
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": 400,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "maxLength": 30, "pattern": pattern},
    }


_TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CONSTRAINTS: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "properties": {
        "hours": _entries(0, 23),
        "dow": _entries(0, 6),
        "dom": _entries(1, 31),
        "months": _entries(1, 12),
        "between": _texts(f"^{_TIME}-{_TIME}$"),
        "dates": _texts(rf"^{_DAY}(\.\.{_DAY})?$"),
    },
}
_WINDOW: Final[Schema] = {
    "type": "object",
    "required": ["mode", "duration"],
    "properties": {"mode": _choice(get_args(Mode)), "duration": _DURATION},
}
_DISTRIBUTION: Final[Schema] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": _choice(get_args(Shape)),
        "shape": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": SHAPE_LIMIT},
        "mu": _choice(get_args(Middle)),
        "sigma": _DURATION,
        "lambda": {
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": RATE_LIMIT,
        },
        "dir": _choice(get_args(Direction)),
    },
}
_SEED: Final[Schema] = {
    "type": "object",
    "properties": {
        "strategy": _choice(get_args(Strategy)),
        "salt": {"type": "string", "maxLength": 1_000},
    },
}
_TEMPLATE: Final[Schema] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {
            "type": "object",
            "properties": {
                each: {"type": "object", "additionalProperties": {"type": "string"}}
                for each in ("labels", "annotations")
            },
        },
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}

# -- the table -------------------------------------------------------------------------------------

FIELDS: Final = (
    Field(
        "schedule",
        {"type": "string", "maxLength": SCHEDULE_LIMIT},
        "When it is due: five fields of POSIX cron, minute hour day month weekday; no steps, "
        "names or macros.",
        required=True,
    ),
    Field(
        "timeZone",
        {"type": "string", "minLength": 1, "maxLength": 100},
        "The IANA name of the zone on whose wall clock the schedule is read.",
        "UTC",
    ),
    Field(
        "repeatedHour",
        {**_choice(get_args(RepeatedHour)), "default": "both"},
        "Whether a wall clock minute that comes twice in autumn is due both times, or the first "
        "time.",
    ),
    Field(
        "window",
        _WINDOW,
        "A span of time around each due minute, in which the Job starts at a second that is "
        f"chosen once and for all; at most {WINDOW_LIMIT.days} days.",
        "none, it starts at the due minute",
    ),
    Field("distribution", _DISTRIBUTION, "How the chosen times fall in the window.", "uniform"),
    Field("seed", _SEED, "What the choice depends on: strategy and salt.", "stable, no salt"),
    Field("only", _CONSTRAINTS, "When a start is allowed.", "always"),
    Field("avoid", _CONSTRAINTS, "When it is not.", "never"),
    Field(
        "concurrencyPolicy",
        {**_choice(tuple(CONCURRENCY)), "default": "Queue"},
        "What becomes of a minute that is due while a Job of it runs: it is owed once, directly "
        "after it; it runs in parallel; it is skipped; the Job is deleted first.",
    ),
    Field(
        "startingDeadlineSeconds",
        {"type": "integer", "format": "int64", "minimum": 0, "maximum": 315_360_000},
        "How late a start may be. What is later is recorded as missed and not started.",
        "any lateness",
    ),
    Field(
        "catchUp",
        {**_choice(get_args(CatchUp)), "default": "once"},
        "What becomes of due minutes that passed while the operator did not run: one start for "
        "all of them; the same, but only if it has run before; none.",
    ),
    Field(
        "suspend",
        {"type": "boolean", "default": False},
        "Whether nothing of it starts. Nothing is made up for afterwards, except the latest "
        "minute that is still inside startingDeadlineSeconds.",
    ),
    Field("jobTemplate", _TEMPLATE, "The Job that is created for each period.", required=True),
    Field(
        "successfulJobsHistoryLimit",
        {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000, "default": 3},
        "How many succeeded Jobs are kept. The ledger does not need them.",
    ),
    Field(
        "failedJobsHistoryLimit",
        {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000, "default": 1},
        "How many failed Jobs are kept.",
    ),
)


def _needs_window(field: str) -> Rule:
    text = f"{field}: it needs a window"
    return Rule(
        f"!has(self.{field}) || has(self.window)",
        text,
        lambda spec: text if field in spec and "window" not in spec else None,
    )


SPEC_RULES: Final = (_needs_window("distribution"), _needs_window("seed"))

_TOO_LONG: Final = (
    f"the name of a KronJob has at most {NAME_LIMIT} characters: its Jobs are called after it"
)
OBJECT_RULES: Final = (
    Rule(
        f"self.metadata.name.size() <= {NAME_LIMIT}",
        _TOO_LONG,
        lambda kronjob: _TOO_LONG if len(kronjob["metadata"]["name"]) > NAME_LIMIT else None,
    ),
)

RULES: Final[Mapping[tuple[str, ...], tuple[Rule, ...]]] = {
    (): OBJECT_RULES,
    ("spec",): SPEC_RULES,
    ("spec", "schedule"): SCHEDULE_RULES,
}
"""The rules by the path of what they are about."""
