"""The table of options told to others: a JSON Schema for editors, and the tables of the manual, of
which the man pages are made. What stands in those files is this text; a test compares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from cronpoll.config.registry import Daemon, Task, by_key
from cronpoll.config.targets import WAYS, Target
from cronpoll.core.options import Row, Settings, rows
from cronpoll.core.values import duration_text


def _default(row: Row) -> str:
    """The default in words."""
    if row.option.otherwise:
        return row.option.otherwise
    if row.default is None:
        return "none"
    if isinstance(row.default, timedelta):
        return f'`"{duration_text(row.default)}"`'
    if isinstance(row.default, str):
        return f'`"{row.default}"`'
    return row.option.kind.words(row.default)


# -- the JSON Schema -------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """Of a registry file. What depends on more than one place of it (names used twice, options that
    do not go together, zones, days that never come) only `validate` can tell."""
    task = _properties(by_key(Task)) | {"retry": _object(_properties(by_key(Task, "retry.")))}
    shared = {
        key: value
        for key, value in task.items()
        if key == "retry" or not by_key(Task)[key].option.own
    }
    either = {"not": {"required": ["retry", "retry_delay"]}}
    one = _object({**task, "cron": _without_pattern(task["cron"])}) | {
        "required": ["name"],
        "oneOf": [{"required": ["command"]}, {"required": ["callback"]}],
        **either,
    }
    target = _object(_properties(by_key(Target))) | {"oneOf": [{"required": [way]} for way in WAYS]}
    tables = {
        "include": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "pattern": r"^(?!.*\*\*)"},
            "description": "Files that belong to it, relative to this one, such as conf.d/*.toml.",
        },
        "daemon": _object(_properties(by_key(Daemon))),
        "defaults": _object({**shared, "cron": _without_pattern(task["cron"])}) | either,
        "notify": {"type": "object", "additionalProperties": target},
        "tag": {"type": "object", "additionalProperties": _object({"notify": task["notify"]})},
        "task": {"type": "array", "items": one},
    }
    strict = {"properties": {"cron": task["cron"]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Registry file of cronpoll",
        **_object(tables),
        "allOf": [
            {
                "anyOf": [
                    _at("task", {"minItems": 1}),
                    _at("daemon", _at("allow_empty", {"const": True})),
                    {"required": ["include"]},
                ]
            },
            _if(
                _at("defaults", _at("dialect", {"const": "crontab"})),
                _in_tasks(_if(_at("dialect", {"const": "strict"}), strict, {})),
                {
                    "properties": {
                        "defaults": strict,
                        "task": {
                            "items": _if(_at("dialect", {"const": "crontab"}), {}, strict),
                        },
                    }
                },
            ),
            _if(_at("defaults", _TIMED), {}, _in_tasks(_TIMED)),
        ],
    }


_TIMED: Final = {"anyOf": [{"required": [key]} for key in ("cron", "on_start", "after")]}
"""When it starts has to be said."""


def _without_pattern(kind: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kind.items() if key != "pattern"}


def _at(key: str, rule: dict[str, Any]) -> dict[str, Any]:
    """The key is there, and its value so."""
    return {"required": [key], "properties": {key: rule}}


def _in_tasks(rule: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"task": {"items": rule}}}


def _if(condition: dict[str, Any], then: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"if": condition, "then": then, "else": other}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _properties(keys: Mapping[str, Row]) -> dict[str, Any]:
    return {
        key: {**row.option.kind.schema, "description": _plain(row.option.help)}
        for key, row in keys.items()
    }


def _plain(text: str) -> str:
    return text.replace("`", "")


# -- the manual in Markdown ------------------------------------------------------------------------


def options() -> str:
    """The page of every key of a registry file."""
    text = (
        '# Options\n\nEvery key of a registry file. Durations are `"90s"`, `"1h30m"`, or a '
        "number of seconds. [The registry\nfile](file.md) shows how they go together.\n"
    )
    tables = (
        ("[[task]], and [defaults] for all of them", Task, ""),
        ("retry = { ... }", Task, "retry."),
        ("[daemon]", Daemon, ""),
        ("[notify.NAME]", Target, ""),
    )
    for title, table, within in tables:
        text += f"\n## {title}\n\n| key | values | default | meaning |\n|---|---|---|---|\n"
        for key, row in by_key(table, within).items():
            default = "required" if row.required else _default(row)
            sign = _cell(row.option.kind.sign)
            text += f"| `{key}` | {sign} | {default} | {_cell(row.option.help, code=False)} |\n"
    return text


def _cell(text: str, *, code: bool = True) -> str:
    """A cell of a table: a bar in it would end it."""
    parts = (f"`{part}`" if code and '"' in part else part for part in text.split(" | "))
    return ", ".join(parts).replace("|", "\\|")


def library() -> str:
    """The options of a `Registration` as a table."""
    lines = ["| option | values | default | meaning |", "|---|---|---|---|"]
    for name, row in rows(Settings).items():
        sign = row.option.kind.sign.replace("duration", "`timedelta`")
        sign = ", ".join(f"`{part}`" if '"' in part else part for part in sign.split(" | "))
        default = _default(row)
        if isinstance(row.default, bool):
            sign, default = "`True`, `False`", f"`{row.default}`"
        lines.append(f"| `{name}` | {sign} | {default} | {row.option.help} |")
    return "\n".join(lines) + "\n"
