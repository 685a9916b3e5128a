"""A KronJob as a value: read from what an API server or a file has, with every problem at its path.

`problems_of` refuses what the API server refuses (the schema and the rules of `fields`) and what
only a calendar can know: a zone, a day that never comes, a window that is too long. An object that
comes from an API server has passed the first half already; the second half becomes the condition
InvalidSpec.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from cronpoll.config import spreads
from cronpoll.core.cron import parse
from cronpoll.core.errors import InvalidCronExpressionError, abbreviate
from cronpoll.core.model import Options, TaskConfig
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.core.values import WrongError, zone_problem
from cronpoll.operator.fields import (
    API_VERSION,
    CONCURRENCY,
    FIELDS,
    KIND,
    RULES,
    Schema,
)

Path = tuple[str | int, ...]
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
SPEC_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": [field.name for field in FIELDS if field.required],
    "properties": {
        field.name: {
            **field.schema,
            "description": field.help
            + (f" If it is absent: {field.otherwise}." if field.otherwise else ""),
        }
        for field in FIELDS
    },
}


class Problem(NamedTuple):
    """Something that is wrong with a manifest."""

    path: Path
    message: str

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{where.removeprefix('.')}: {self.message}" if where else self.message


class KronJob(msgspec.Struct, frozen=True):
    """What is wanted. `config`: the part that says when, in the words of the core."""

    namespace: str
    name: str
    uid: str
    generation: int
    config: TaskConfig
    template: dict[str, Any]
    succeeded_kept: int
    failed_kept: int
    valid: bool = True
    """If not, nothing of it is due, and no Job is made of it: only those that exist matter."""

    @property
    def identity(self) -> str:
        """What a chosen second depends on, and the name of the task in every event."""
        return f"{self.namespace}/{self.name}"

    @property
    def starts_suspended(self) -> bool:
        """Somebody else starts its Jobs, such as Kueue."""
        return self.template["spec"].get("suspend") is True


# -- the schema, without an API server -------------------------------------------------------------

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _as_stored(schema: Schema, value: Any) -> Any:
    """Without the fields that are null, which an API server drops."""
    if not isinstance(value, dict):
        return value
    stored = {}
    for name, each in value.items():
        of = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if of is None:
            stored[name] = each
        elif each is not None:
            stored[name] = _as_stored(of, each)
    return stored


def _against(schema: Schema, value: Any, path: Path) -> Iterator[Problem]:
    """What the schema says against a value."""
    if schema.get("x-kubernetes-int-or-string"):
        fits = _is(value, "integer") and _number_fits(schema, value)
        if not fits and not (_is(value, "string") and _text_fits(schema, value)):
            yield Problem(path, f"{_shown(value)} is not allowed here; {_expected(schema)}")
        return
    kind = schema["type"]
    if not _is(value, kind):
        yield Problem(path, f"expected {_NOUNS[kind]}, not {_shown(value)}")
    elif kind == "object":
        yield from _object(schema, value, path)
    elif kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema["maxItems"]:
            yield Problem(path, f"expected a list of 1 to {schema['maxItems']} entries")
        for index, each in enumerate(value):
            yield from _against(schema["items"], each, (*path, index))
    elif "enum" in schema and value not in schema["enum"]:
        hint = difflib.get_close_matches(str(value), schema["enum"], 1)
        also = f"; did you mean {hint[0]}?" if hint else ""
        yield Problem(path, f"expected one of {', '.join(schema['enum'])}{also}")
    elif kind == "string" and not _text_fits(schema, value):
        yield Problem(path, f"{_shown(value)} is not allowed here; {_expected(schema)}")
    elif kind in ("integer", "number") and not _number_fits(schema, value):
        yield Problem(path, f"{_shown(value)} is out of range; {_expected(schema)}")


def _object(schema: Schema, value: dict[str, Any], path: Path) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(path, f"the field {name} is missing")
    if len(value) < schema.get("minProperties", 0):
        yield Problem(path, "empty; expected at least one clause like hours: [1, 2]")
    for name, each in value.items():
        if name in known:
            yield from _against(known[name], each, (*path, name))
        elif "additionalProperties" in schema:
            yield from _against(schema["additionalProperties"], each, (*path, name))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            hint = difflib.get_close_matches(str(name), known, 1)
            also = f"did you mean {hint[0]}?" if hint else f"known: {', '.join(known)}"
            yield Problem((*path, name), f"unknown field; {also}")


def _text_fits(schema: Schema, value: str) -> bool:
    return (
        schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        and re.search(schema.get("pattern", ""), value) is not None
    )


def _number_fits(schema: Schema, value: float) -> bool:
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    return bool(low <= value <= high and not (schema.get("exclusiveMinimum") and value == low))


_NOUNS: Final = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def _expected(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        low, high = schema["minimum"], schema["maximum"]
        return f'expected a number from {low} to {high}, or a range like "{low}-{high}"'
    if "minimum" in schema:
        above = "above" if schema.get("exclusiveMinimum") else "from"
        return f"expected a number {above} {schema['minimum']:g} up to {schema['maximum']:g}"
    if "pattern" in schema:
        return f"expected text that matches {schema['pattern']}"
    return f"expected {schema.get('minLength', 0)} to {schema.get('maxLength')} characters"


def _shown(value: Any) -> str:
    return abbreviate(repr(value), 60)


# -- problems --------------------------------------------------------------------------------------


def problems_of(manifest: Any) -> list[Problem]:
    """Everything that is wrong with a manifest of a KronJob."""
    if not isinstance(manifest, dict):
        return [Problem((), f"expected an object, not {_shown(manifest)}")]
    if (found := (manifest.get("apiVersion"), manifest.get("kind"))) != (API_VERSION, KIND):
        return [Problem((), f"expected {API_VERSION} {KIND}, not {_shown(found)}")]
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not _DNS.fullmatch(name) or len(name) > 253:
        text = f"{_shown(name)} is not a name; expected lower case letters, digits and dashes"
        return [Problem(("metadata", "name"), text)]
    if "spec" not in manifest:
        return [Problem((), "the field spec is missing")]
    spec = _as_stored(SPEC_SCHEMA, manifest["spec"])
    found_so_far = list(_against(SPEC_SCHEMA, spec, ("spec",)))
    if not isinstance(spec, dict):
        return found_so_far
    wrong = {problem.path for problem in found_so_far}
    for path, rules in RULES.items():
        value: Any = {**manifest, "spec": spec}
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None or path in wrong:
            continue
        messages = (rule.check(value) for rule in rules)
        found_so_far += [Problem(path, message) for message in messages if message is not None]
    # A mistake is reported once, where the schema says that it is.
    known = {path[:length] for path, _ in found_so_far for length in range(len(path) + 1)}
    return found_so_far + [problem for problem in _by_calendar(spec) if problem.path not in known]


_PARTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "window": spreads.window,
    "distribution": spreads.distribution,
    "seed": spreads.seed,
    "only": spreads.constraints,
    "avoid": spreads.constraints,
}


def _by_calendar(spec: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong besides the schema."""
    if isinstance(schedule := spec.get("schedule"), str):
        try:
            parse(schedule)
        except InvalidCronExpressionError as error:
            yield Problem(("spec", "schedule"), error.message)
    if "timeZone" in spec and (reason := zone_problem(spec["timeZone"])) is not None:
        yield Problem(("spec", "timeZone"), reason)
    for part, read in _PARTS.items():
        if part in spec:
            try:
                read(spec[part])
            except WrongError as wrong:
                yield Problem(("spec", part), str(wrong))
    work = spec.get("jobTemplate")
    if isinstance(work, dict) and isinstance(work.get("spec"), dict):
        yield from _of_pod(work["spec"])


def _of_pod(job: dict[str, Any]) -> Iterator[Problem]:
    """Of the template, what a Job cannot be made without. The rest of it the API server judges,
    when the Job is created."""
    path: Path = ("spec", "jobTemplate", "spec")
    value: Any = job
    for part in ("template", "metadata", "annotations"):
        path, value = (*path, part), value.get(part)
        if value is None and part != "template":
            return
        if not isinstance(value, dict):
            missing = "the field template is missing"
            text = missing if value is None else f"expected an object, not {_shown(value)}"
            yield Problem(path[:-1] if value is None else path, text)
            return


# -- the value -------------------------------------------------------------------------------------


def config_of(spec: Mapping[str, Any]) -> TaskConfig:
    """When it is due, in the words of the core. The spec has no problems."""
    found = {part: read(spec[part]) for part, read in _PARTS.items() if part in spec}
    window: Window | None = found.get("window")
    only: Constraints | None = found.get("only")
    avoid: Constraints | None = found.get("avoid")
    spread = None
    if window is not None or only is not None or avoid is not None:
        spread = Spread(
            window=window,
            distribution=found.get("distribution", Distribution()),
            seed=found.get("seed", Seed()),
            only=only,
            avoid=avoid,
        )
    deadline = spec.get("startingDeadlineSeconds")
    zone = spec.get("timeZone", "UTC")
    options = Options(
        timezone=zone,
        repeated_hour=spec.get("repeatedHour", "both"),
        catch_up=spec.get("catchUp", "once"),
        concurrency=CONCURRENCY[spec.get("concurrencyPolicy", "Queue")],  # type: ignore[arg-type]
        suspend=spec.get("suspend", False),
        deadline_ms=None if deadline is None else deadline * 1_000,
        # A retry is the Job's own, and a Job does not end with the operator.
        max_attempts=1,
        interrupted="abandon",
        spread=spread,
    )
    return TaskConfig(spec["schedule"], 0, zone, options)


def read(manifest: Mapping[str, Any]) -> KronJob | list[Problem]:
    """The value, or everything that is wrong."""
    problems = problems_of(manifest)
    if problems:
        return problems
    metadata, spec = manifest["metadata"], _as_stored(SPEC_SCHEMA, manifest["spec"])
    return KronJob(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        config=config_of(spec),
        template=spec["jobTemplate"],
        succeeded_kept=spec.get("successfulJobsHistoryLimit", 3),
        failed_kept=spec.get("failedJobsHistoryLimit", 1),
    )


def invalid(manifest: Mapping[str, Any], config: TaskConfig) -> KronJob:
    """What is left of one whose spec has problems. `config`: of the last that had none."""
    metadata = manifest["metadata"]
    return KronJob(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata["generation"],
        config,
        template={},
        succeeded_kept=0,
        failed_kept=0,
        valid=False,
    )
