"""Manifests in files: every document with the lines at which its parts stand."""

from __future__ import annotations

from typing import Any, NamedTuple

from cronpoll.operator.kronjob import Path

Place = tuple[int, int]


class UnreadableFileError(Exception):
    """It is no YAML. `place`: where that was found out."""

    def __init__(self, text: str, place: Place) -> None:
        super().__init__(text)
        self.place = place


class Document(NamedTuple):
    value: Any
    places: dict[Path, Place]

    def place(self, path: Path) -> Place:
        """Where a part stands; if it is missing, where what it belongs to does."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, (1, 1))


def documents(text: str) -> list[Document]:
    """The documents of a YAML or JSON file; the items of a List are documents of their own."""
    import yaml

    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node]
        found = []
        for node in nodes:
            places: dict[Path, Place] = {}
            _places(node, (), places)
            value = yaml.SafeLoader("").construct_document(node)
            found += _items(Document(_plain(value), places))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        raise UnreadableFileError(str(error.problem or error), place) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFileError(str(error), (1, 1)) from error
    return found


def _places(node: Any, path: Path, places: dict[Path, Place]) -> None:
    places.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
    if node.id == "mapping":
        for key, value in node.value:
            _places(value, (*path, str(key.value)), places)
    elif node.id == "sequence":
        for index, value in enumerate(node.value):
            _places(value, (*path, index), places)


def _plain(value: Any) -> Any:
    """As JSON has it: YAML makes dates of what looks like one."""
    from datetime import date

    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def _items(document: Document) -> list[Document]:
    value = document.value
    if not (isinstance(value, dict) and value.get("kind") == "List"):
        return [document]
    found = []
    for index, item in enumerate(value.get("items") or ()):
        begin: Path = ("items", index)
        places = {path[2:]: place for path, place in document.places.items() if path[:2] == begin}
        found.append(Document(item, places))
    return found
