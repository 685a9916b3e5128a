"""Where in a TOML text each key and each value stands.

The standard parser gives values without positions, and a message without a position sends its
reader searching. This walks a text that the parser has already accepted, so it need not judge, only
keep count: headers, keys, and where values end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

Path = tuple[str | int, ...]
"""A value's place in the data: keys, and indices into arrays."""

_BLANK = " \t"
_SPACE = " \t\r\n"
_BARE_END = "=.]} \t\r\n"
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")
_STRETCH: Final = re.compile(r'[^"\\]+')
_ONE: Final = r'(?:"[^"\\\n]*+"|[^\s"\'\[\]{},#]++)'
_PAIR: Final = rf"[A-Za-z0-9_-]++[ \t]*+=[ \t]*+(?:{_ONE}|\[(?:{_ONE}(?:, ?{_ONE})*+)?\])[ \t]*+"
_PLAIN_LINES: Final = re.compile(rf"(?:[ \t]*+(?:{_PAIR})?(?:#[^\n]*+)?\r?\n)++")
"""Lines that hold nothing, a comment, or a whole pair of the usual form: they are passed at once.
What does not match is walked step by step, so this need not know every form, only the ends of
these."""


class Place(NamedTuple):
    line: int
    column: int


class Places:
    """The places of one text, by path. An inner value that has none of its own stands where its
    container stands.

    A file has a hundred thousand tables, of which a few are asked for. So the text is walked twice:
    once quickly, when something is asked for the first time, to find where each table begins; then
    in detail, only the tables on the way to what is asked for.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []
        self._tables: dict[Path, list[int]] | None = None
        self._keys: dict[Path, int] = {(): 0}
        self._values: dict[Path, int] = {(): 0}
        self._arrays: dict[Path, int] = {}
        self._at = 0

    def __reduce__(self) -> tuple[type[Places], tuple[str]]:
        return Places, (self._text,)

    def key(self, path: Path) -> Place:
        """Where the key (or the header) stands that introduces this path."""
        return self._find(self._keys, path)

    def value(self, path: Path) -> Place:
        """Where the value of this path begins."""
        return self._find(self._values, path)

    def span(self, path: Path) -> tuple[int, int]:
        """Where the value of this path begins and ends, as offsets. It has to be there."""
        self.value(path)
        self._at = start = self._values[path]
        self._value(None)
        return start, self._at

    def _find(self, where: dict[Path, int], path: Path) -> Place:
        if self._tables is None:
            self._tables = {(): [0]}
            self._outline(self._tables)
        for length in range(len(path) + 1):
            for offset in self._tables.pop(path[:length], ()):
                self._detail(path[:length], offset)
        while path not in where:
            path = path[:-1]
        return self.at(where[path])

    def at(self, offset: int) -> Place:
        if not self._starts:
            lengths = (len(line) + 1 for line in self._text.split("\n"))
            self._starts = list(accumulate(lengths, initial=0))
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    # -- walking -----------------------------------------------------------------------------------

    def _outline(self, tables: dict[Path, list[int]]) -> None:
        """Find the headers: of each table, where what stands in it begins."""
        self._at = 0
        text, end = self._text, len(self._text)
        while self._at < end:
            match = _PLAIN_LINES.match(text, self._at)
            if match is not None:
                self._at = match.end()
            elif self._skip(_SPACE):
                if text[self._at] == "[":
                    path = self._header(2 if text.startswith("[[", self._at) else 1)
                    tables.setdefault(path, []).append(self._at)
                else:
                    self._pair(None)

    def _detail(self, table: Path, offset: int) -> None:
        """The pairs from here to the next header."""
        self._at = offset
        while self._skip(_SPACE) and self._text[self._at] != "[":
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
                # By their whole path, indices included: arrays inside an element count anew in the
                # next one.
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

    def _pair(self, table: Path | None) -> None:
        """A key and its value. Without a table they are only passed."""
        self._skip(_BLANK)
        start = self._at
        names = self._dotted()
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        path = None if table is None else (*table, *names)
        if path is not None:
            self._keys.setdefault(path, start)
        self._value(path)

    def _value(self, path: Path | None) -> None:
        self._skip(_BLANK)
        if path is not None:
            self._values[path] = self._at
            self._keys.setdefault(path, self._at)
        character = self._text[self._at]
        if character == "[":
            self._at += 1
            index = 0
            while self._skip(_SPACE + ",") and self._text[self._at] != "]":
                self._value(None if path is None else (*path, index))
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
            match = _SCALAR.match(self._text, self._at)
            assert match is not None, "the parser has accepted it"
            self._at = match.end()

    def _string(self) -> None:
        text, quote = self._text, self._text[self._at]
        fence = quote * 3 if text.startswith(quote * 3, self._at) else quote
        at = self._at + len(fence)
        if quote == '"':
            while not text.startswith(fence, at):
                # A stretch without quote and backslash; else an escape, or a quote inside.
                match = _STRETCH.match(text, at)
                at = match.end() if match else at + (2 if text[at] == "\\" else 1)
        else:
            at = text.index(fence, at)
        at += len(fence)
        if len(fence) == 3:  # up to two quotes may stand directly before the closing three
            while at < len(text) and text[at] == quote:
                at += 1
        self._at = at


NOWHERE: Final = Places("")


def _unescaped(inner: str) -> str:
    """A quoted key's text. Escapes in keys are as good as unknown; the parser is asked where one
    occurs."""
    if "\\" not in inner:
        return inner
    import tomllib

    return next(iter(tomllib.loads(f'"{inner}" = 0')))
