"""The files that make up a registry: the one that is named, and those that it includes.

They are one thing: read together, judged together, applied together, kept together. What is read
here is not judged; who could have written a file, and that one cannot be read, is noted with it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from cronpoll.config.trust import Distrust, untrusted
from cronpoll.core.values import WrongError, filled, inner
from cronpoll.files import open_file

SIZE_LIMIT: Final = 32 * 2**20
"""Bytes of a registry, all files together: room for a hundred thousand tasks of 300 characters."""
TOO_LARGE: Final = f"is larger than {SIZE_LIMIT // 2**20} MiB, which no registry file may be"
NOT_FOR_ROOT: Final = "will not be used by root"
FILES_LIMIT: Final = 1_000
LAST_GOOD: Final = "last-good.toml"
"""The copy of what is in force, in the state directory."""
_HEADER: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_TRIES: Final = 8
_KEPT: Final = b"#:cronpoll-files "
"""What the copy of several files begins with: a list of names and lengths, in JSON."""


class Part(NamedTuple):
    """One file. `file`: its name, as it is shown. `problem`: why it cannot be used."""

    file: str
    content: bytes
    mode: int = 0
    problem: str | None = None
    distrust: Distrust | None = None

    @property
    def refused(self) -> str:
        """Why a daemon does not use it; empty if it does."""
        return f"{NOT_FOR_ROOT}: {self.distrust}" if self.distrust else self.problem or ""


@dataclass(frozen=True)
class Bundle:
    """The files of a registry, the one that includes the others first."""

    parts: tuple[Part, ...]

    @property
    def main(self) -> Part:
        return self.parts[0]

    @property
    def size(self) -> int:
        return sum(len(part.content) for part in self.parts)

    @cached_property  # of 32 MiB it takes a while
    def content_id(self) -> str:
        """Equal ids mean that nothing has changed."""
        if len(self.parts) == 1:
            return self.main.refused or hashlib.sha256(self.main.content).hexdigest()
        digest = hashlib.sha256()
        for part in self.parts:
            named = [part.file, len(part.content), part.refused]
            digest.update(json.dumps(named).encode() + part.content)
        return digest.hexdigest()


def alone(file: str, content: bytes) -> Bundle:
    return Bundle((Part(file, content),))


def include(value: Any) -> tuple[str, ...]:
    """What `include` may be: names of files, with * and ? in them."""
    if not isinstance(value, list):
        raise WrongError('expected a list of files like ["conf.d/*.toml"]')
    for index, each in enumerate(value):
        with inner(index):
            if "**" in filled(each):
                raise WrongError("** is not supported: name each directory")
    return tuple(value)


# -- reading ---------------------------------------------------------------------------------------


def gather(file: str, *, check_ownership: bool) -> Bundle:
    """A registry as it is on the disk now. `check_ownership`: note what root must not use."""
    main = read_part(file, check_ownership=check_ownership)
    if main.problem is not None:
        return Bundle((main,))
    parts = [main]
    left = SIZE_LIMIT - len(main.content)
    for name in included(file, patterns_of(main.content)):
        if len(parts) > FILES_LIMIT:
            parts.append(Part(name, b"", problem=f"more than {FILES_LIMIT} files are included"))
            break
        parts.append(read_part(name, left, check_ownership=check_ownership))
        left -= len(parts[-1].content)
    return Bundle(tuple(parts))


def read_part(file: str, limit: int = SIZE_LIMIT, *, check_ownership: bool) -> Part:
    """One file as it is now."""
    try:
        with open(open_file(file, os.O_RDONLY), "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = opened.read(limit + 1)
            distrust = untrusted(file, opened.fileno()) if check_ownership else None
    except FileNotFoundError:
        return Part(file, b"", problem="there is no such file")
    except OSError as error:
        odd = error.strerror == "is not a regular file"
        text = error.strerror if odd else f"cannot be read: {error.strerror or error}"
        return Part(file, b"", problem=text)
    if len(content) > limit:
        return Part(file, b"", problem=TOO_LARGE)
    return Part(file, content, mode, distrust=distrust)


def patterns_of(content: bytes) -> tuple[str, ...]:
    """What a file includes. Only its beginning is parsed: `include` stands before every table. What
    is wrong with it is found by whoever reads all of it."""
    if b"include" not in content:
        return ()
    text = content.decode(errors="replace")
    ends = [match.start() for match, _ in zip(_HEADER.finditer(text), range(_TRIES), strict=False)]
    for end in (*ends, len(text)):  # a line that begins with [ may belong to an array or a text
        try:
            return include(tomllib.loads(text[:end]).get("include", []))
        except WrongError:
            return ()
        except (ValueError, RecursionError):
            continue
    return ()


def included(file: str, patterns: tuple[str, ...]) -> list[str]:
    """The files that these patterns name now, in order. One without * and ? has to be there."""
    directory = os.path.dirname(file)
    seen = {os.path.realpath(file)}
    found: list[str] = []
    for pattern in patterns:
        path = os.path.join(directory, pattern)
        within = os.path.join(glob.escape(directory), pattern)
        for name in sorted(glob.glob(within)) if glob.has_magic(pattern) else [path]:
            real = os.path.realpath(name)
            if real not in seen and not os.path.isdir(real):
                seen.add(real)
                found.append(name)
    return found


def directories(file: str, patterns: tuple[str, ...]) -> set[str]:
    """The directories in which something can change what is read. A name may be a link to elsewhere
    (ConfigMaps): both can change it. One that is not there yet can come."""
    files = [file, *included(file, patterns)]
    places = {os.path.dirname(os.path.abspath(name)) for name in files}
    places |= {os.path.dirname(os.path.realpath(name)) for name in files}
    base = os.path.dirname(os.path.abspath(file))
    for pattern in patterns:
        places |= set(_on_the_way(base, pattern))
    return {place for place in places if os.path.isdir(place)}


def _on_the_way(base: str, pattern: str) -> Iterator[str]:
    """The directories that a pattern leads through."""
    above = os.path.dirname(os.path.join(base, pattern))
    matching = glob.glob(os.path.join(glob.escape(base), os.path.dirname(pattern)))
    yield from map(os.path.abspath, matching)
    while glob.has_magic(above.removeprefix(base)) or not os.path.isdir(above):
        above = os.path.dirname(above)
    yield above


# -- a copy ----------------------------------------------------------------------------------------


def packed(bundle: Bundle) -> bytes:
    """All files in one, to be kept. One file is kept as it is."""
    if len(bundle.parts) == 1:
        return bundle.main.content
    base = os.path.dirname(os.path.abspath(bundle.main.file))
    table = [
        [os.path.relpath(os.path.abspath(part.file), base), len(part.content)]
        for part in bundle.parts
    ]
    head = _KEPT + json.dumps(table).encode() + b"\n"
    return head + b"".join(part.content for part in bundle.parts)


def unpacked(content: bytes, file: str) -> Bundle:
    """What was kept, under the names that the files have beside this one."""
    if not content.startswith(_KEPT):
        return alone(file, content)
    head, _, rest = content.removeprefix(_KEPT).partition(b"\n")
    parts: list[Part] = []
    for name, length in json.loads(head):
        shown = os.path.join(os.path.dirname(file), name) if parts else file
        parts.append(Part(shown, rest[:length]))
        rest = rest[length:]
    return Bundle(tuple(parts))
