"""Where in a TOML text each key and each value stands.

The standard parser gives values without positions, and a message without a position sends its reader searching. This walks
a text that the parser has already accepted, so it need not judge, only keep count: headers, keys, and where values end.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

Path = tuple[str | int, ...]
"""A value's place in the data: keys, and indices into arrays."""

_BLANK = " \t"
_SPACE = " \t\r\n"
_BARE_END = "=.]} \t\r\n"


class Place(NamedTuple):
    line: int
    column: int


class Places:
    """The places of one text, by path. An inner value that has none of its own stands where its container stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0]
        self._starts += [index + 1 for index, character in enumerate(text) if character == "\n"]
        self._keys: dict[Path, int] = {(): 0}
        self._values: dict[Path, int] = {(): 0}
        self._arrays: dict[Path, int] = {}
        self._at = 0
        self._walk()

    def key(self, path: Path) -> Place:
        """Where the key (or the header) stands that introduces this path."""
        return self._find(self._keys, path)

    def value(self, path: Path) -> Place:
        """Where the value of this path begins."""
        return self._find(self._values, path)

    def _find(self, where: dict[Path, int], path: Path) -> Place:
        while path not in where:
            path = path[:-1]
        return self.at(where[path])

    def at(self, offset: int) -> Place:
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    # -- walking --------------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        table: Path = ()
        while self._skip(_SPACE):
            if self._text.startswith("[[", self._at):
                table = self._header(2)
            elif self._text[self._at] == "[":
                table = self._header(1)
            else:
                self._pair(table)

    def _skip(self, blanks: str) -> bool:
        """Move over blanks and comments. Whether anything is left."""
        text, end = self._text, len(self._text)
        while self._at < end:
            if text[self._at] in blanks:
                self._at += 1
            elif text[self._at] == "#":
                newline = text.find("\n", self._at)
                self._at = end if newline < 0 else newline
            else:
                return True
        return False

    def _header(self, brackets: int) -> Path:
        start = self._at
        self._at += brackets
        names = self._dotted()
        self._at = self._text.index("]" * brackets, self._at) + brackets
        path: Path = ()
        for depth, name in enumerate(names, 1):
            path = (*path, name)
            if brackets == 2 and depth == len(names):
                # By their whole path, indices included: arrays inside an element count anew in the next one.
                self._arrays[path] = self._arrays.get(path, -1) + 1
                self._keys.setdefault(path, start)
                self._values.setdefault(path, start)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        self._keys.setdefault(path, start)
        self._values.setdefault(path, start)
        return path

    def _dotted(self) -> list[str]:
        names = [self._name()]
        while self._skip(_BLANK) and self._text[self._at] == ".":
            self._at += 1
            names.append(self._name())
        return names

    def _name(self) -> str:
        self._skip(_BLANK)
        text, start = self._text, self._at
        if text[start] in "\"'":
            self._string()
            inner = text[start + 1 : self._at - 1]
            return _unescaped(inner) if text[start] == '"' else inner
        while self._at < len(text) and text[self._at] not in _BARE_END:
            self._at += 1
        return text[start : self._at]

    def _pair(self, table: Path) -> None:
        self._skip(_BLANK)
        start = self._at
        path = (*table, *self._dotted())
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._keys.setdefault(path, start)
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        self._values[path] = self._at
        self._keys.setdefault(path, self._at)
        character = self._text[self._at]
        if character == "[":
            self._at += 1
            index = 0
            while self._skip(_SPACE + ",") and self._text[self._at] != "]":
                self._value((*path, index))
                index += 1
            self._at += 1
        elif character == "{":
            self._at += 1
            while self._skip(_SPACE + ",") and self._text[self._at] != "}":
                self._pair(path)
            self._at += 1
        elif character in "\"'":
            self._string()
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}#\r\n":
                self._at += 1

    def _string(self) -> None:
        text, quote = self._text, self._text[self._at]
        fence = quote * 3 if text.startswith(quote * 3, self._at) else quote
        at = self._at + len(fence)
        while not text.startswith(fence, at):
            at += 2 if text[at] == "\\" and quote == '"' else 1
        at += len(fence)
        if len(fence) == 3:  # up to two quotes may stand directly before the closing three
            while at < len(text) and text[at] == quote:
                at += 1
        self._at = at


def _unescaped(inner: str) -> str:
    """A quoted key's text. Escapes in keys are as good as unknown; the parser is asked where one occurs."""
    if "\\" not in inner:
        return inner
    import tomllib

    return next(iter(tomllib.loads(f'"{inner}" = 0')))
