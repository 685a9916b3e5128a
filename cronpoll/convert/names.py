"""Names of tasks, made of their commands."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Final

_NAME_LENGTH: Final = 40
_LOOKED_AT: Final = 400
_JOINTS: Final = re.compile(
    r"&&|\|\||[;|&(){}\n`]|\$\(|(?:^|\s)(?:if|then|else|elif|fi|while|do|done)(?=\s|$)"
)
_PREPARATION: Final = re.compile(
    r"test|\[\[?|cd|sleep|export|\.|source|set|umask|ulimit|true|false|:|exit"
)
_WRAPPER: Final = re.compile(
    "!|nice|ionice|chronic|timeout|flock|env|exec|eval|command|nohup|time|sudo|setsid|sh|bash"
    r"|systemd-cat|dash|zsh|ksh|python[\d.]*|perl|php[\d.]*|ruby[\d.]*|node|nodejs|java|Rscript"
)
_FILTER: Final = re.compile(
    "sort|uniq|grep|egrep|zgrep|awk|gawk|sed|cat|zcat|tee|head|tail|wc|tr|cut|logger|mail|mailx"
    "|xargs|echo|printf|date|find|ls|read|sponge|column|jq"
)
"""What stands beside the work, before or behind a bar."""
_PARAMETER: Final = re.compile(r"\$\{[^{}]*\}")
_QUOTES: Final = re.compile(r"""'[^']*'|"[^"]*\"""")
_REDIRECTION: Final = re.compile(r"[0-9&]*(?:>>?|<)[&|]?\s*[^\s;&|()]+")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_NO_WORD: Final = re.compile(r"-.*|[\d.]+[smhd]?|\d*[<>].*|[$\"'](?!.*/\w).*")
_EXTENSION: Final = re.compile(r"\.(?:sh|bash|py|pl|php|rb|js|jar|R)$")


def slug(command: str) -> str:
    """A readable name from a command: its script or program, and what follows that is no
    option."""
    begin = command[:_LOOKED_AT]
    # First without what stands in quotes, which is seldom the program; else as if there were none
    # (sh -c "...").
    return _slug_in(_QUOTES.sub("''", begin)) or _slug_in(re.sub("[\"']", " ", begin)) or "task"


def _slug_in(command: str) -> str:
    fallbacks = ["", ""]
    for segment in _JOINTS.split(_REDIRECTION.sub(" ", _PARAMETER.sub("$", command))):
        words = segment.split()
        while words and (
            _ASSIGNMENT.fullmatch(words[0]) or _WRAPPER.fullmatch(posixpath.basename(words[0]))
        ):
            wrapper = not _ASSIGNMENT.fullmatch(words.pop(0))
            while wrapper and words and _NO_WORD.fullmatch(words[0]):
                words.pop(0)
        if not words or _NO_WORD.fullmatch(words[0]):
            continue
        name, program = _slug_of(words), posixpath.basename(words[0])
        if _PREPARATION.fullmatch(program):
            fallbacks[1] = fallbacks[1] or name
        elif _FILTER.fullmatch(program):
            fallbacks[0] = fallbacks[0] or name
        elif name:
            return name
    return fallbacks[0] or fallbacks[1]


def _slug_of(words: list[str]) -> str:
    parts = [words[0], *(word for word in words[1:] if not _NO_WORD.fullmatch(word))][:3]
    found: list[str] = []
    for word in parts:
        part = re.sub(
            r"[\W_]+", "-", _EXTENSION.sub("", posixpath.basename(word.rstrip("/"))).lower()
        ).strip("-")
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
