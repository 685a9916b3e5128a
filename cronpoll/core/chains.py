"""Which task is started after which (`after`): what of it cannot be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def chain_problems(after: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """The tasks whose `after` names nobody, or leads back to themselves; each with the reason.
    `after`: what each task has."""
    sound: set[str] = set()
    for name, upstream in after.items():
        if upstream is not None and upstream not in after:
            yield name, f"there is no task {upstream}"
            continue
        way = _way(name, after, sound)
        if way.count(way[-1]) == 1:
            sound.update(way)
        elif way[-1] == name:
            yield name, f"a circle in which nothing begins: {' after '.join(way)}"


def _way(name: str, after: Mapping[str, str | None], sound: set[str]) -> list[str]:
    """From a task to what is known to have a beginning, or to the first task that comes twice."""
    way, seen = [name], {name}
    while way[-1] not in sound and (upstream := after.get(way[-1])) is not None:
        way.append(upstream)
        if upstream in seen:
            break
        seen.add(upstream)
    return way
