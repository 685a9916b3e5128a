"""The man pages, from the same Markdown as the manual: `python -m tests.tools.pages` writes them
into `packaging/man/`. A page of the manual becomes a section, its headings subsections, its tables
lists."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent
_INLINE: Final = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<slant>[^*\s][^*]*)\*"
    r"|\[(?P<text>[^\]]+)\]\((?P<href>[^)\s]+)\)"
)
_ITEM: Final = re.compile(r"(?:[-*]|\d+\.) ")
_CELL: Final = re.compile(r"(?<!\\)\|")
_WIDTH: Final = 79


class Page(NamedTuple):
    """A man page: its name and section, what it is in a line, and the pages of the manual that it
    is made of. `before`: what goes before them, in Markdown."""

    name: str
    section: int
    what: str
    before: str
    topics: tuple[str, ...]
    see: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"{self.name}.{self.section}"


PAGES: Final = (
    Page(
        "cronpoll", 1, "check, look at and steer tasks of the cronpoll scheduler",
        "# Synopsis\n\n`cronpoll` *command* [*argument* ...]\n\n# Description\n\n"
        "`cronpolld` runs the tasks of a registry file. `cronpoll` answers questions about such a "
        "file and about what the daemon did, and asks a running daemon to do something.\n\n"
        "`cronpoll --version` prints the version, `cronpoll help` lists the pages of the manual, of "
        "which this is one.",
        ("commands", "monitoring", "trouble"),
        ("cronpoll.toml(5)", "cronpolld(8)"),
    ),
    Page(
        "cronpoll.toml", 5, "registry file of the cronpoll scheduler",
        "# Description\n\nThe registry file says what `cronpolld` runs and when. It can have any "
        "name; that of the system service is `/etc/cronpoll/tasks.toml`.",
        ("file", "options", "windows", "cron", "time", "notifications"),
        ("cronpoll(1)", "cronpolld(8)"),
    ),
    Page(
        "cronpolld", 8, "cron scheduler daemon",
        "# Synopsis\n\n`cronpolld --config` *file* [*option* ...]\n\n# Description\n\n"
        "`cronpolld` runs commands and Python functions at times given by cron expressions in a "
        "registry file. Every start is on disk before the work begins, so that after a crash "
        "nothing runs a second time for the same minute, and nothing that was owed is lost.",
        ("daemon", "state", "server", "limits"),
        ("cronpoll(1)", "systemctl(1)", "cronpoll.toml(5)", "cron(8)"),
    ),
    Page(
        "kron-operator", 8, "KronJobs in Kubernetes",
        "# Synopsis\n\n`kron-operator` *command* [*option* ...]\n\n# Description\n\n"
        "`kron-operator` creates a Job for each period of a KronJob, at the second that is chosen "
        "for it, and never a second one. It decides with the functions of `cronpolld`; what it has "
        "decided is kept in the status of the KronJob.",
        ("kubernetes",),
        ("cronpoll(1)", "kubectl(1)", "cronpolld(8)"),
    ),
)  # fmt: skip


def made(topic: Callable[[str], str]) -> dict[str, str]:
    """Every man page by its file. `topic`: a page of the manual, by its name."""
    return {f"packaging/man/{page.file}": _page(page, topic) for page in PAGES}


def _page(page: Page, topic: Callable[[str], str]) -> str:
    version, day = _release()
    lines = [
        '.\\" Made from cronpoll/manual by python -m tests.tools.pages',
        f'.TH {page.name.upper()} {page.section} {day} "cronpoll {version}" "cronpoll"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{_plain(page.name)} \\- {_plain(page.what)}",
        *_blocks(page.before.splitlines()),
    ]
    for name in page.topics:
        lines += _blocks([row for row in topic(name).splitlines() if row[:4] != "<!--"])
    see = ", ".join(rf"\fB{_plain(each[:-3])}\fR{each[-3:]}" for each in page.see)
    return "\n".join([*lines, ".SH SEE ALSO", *_wrapped(see)]) + "\n"


def _release() -> tuple[str, str]:
    found = re.search(r"^## ([0-9.]+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None
    return found[1], found[2]


# -- blocks ----------------------------------------------------------------------------------------


def _blocks(lines: list[str]) -> Iterator[str]:
    at, headed = 0, False  # behind a heading .PP says nothing
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        before, headed = headed, False
        level = len(line) - len(line.lstrip("#"))
        if line.startswith("```"):
            body = list(takewhile(lambda each: not each.startswith("```"), lines[at + 1 :]))
            at += len(body) + 2
            yield from () if before else (".PP",)
            yield from (".RS 2", ".nf", *map(_line, map(_plain, body)), ".fi", ".RE")
        elif level and line[level] == " ":
            at, headed = at + 1, True
            title = _inline(line[level + 1 :])
            yield f".SH {_plain(line[2:].upper())}" if level == 1 else f".SS {title}"
        elif line.startswith("|"):
            rows = list(takewhile(lambda each: each.startswith("|"), lines[at:]))
            at += len(rows)
            yield from _table(rows)
        elif _ITEM.match(line):
            rows = list(takewhile(str.strip, lines[at:]))
            at += len(rows)
            yield from _list(rows)
        else:
            rows = list(takewhile(_flows, lines[at:]))
            at += len(rows)
            if not before:
                yield ".PP"
            yield from _wrapped(_inline(" ".join(rows)))


def _flows(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("#", "```", "|")) and not _ITEM.match(line)


def _list(rows: list[str]) -> Iterator[str]:
    items: list[str] = []
    for row in rows:
        if _ITEM.match(row):
            items.append(row.partition(" ")[2])
        else:
            items[-1] += f" {row.strip()}"
    for item in items:
        name, colon, meaning = item.partition("`: ")
        if colon and item.startswith("`"):
            yield from _tagged(f"{name}`", meaning)
        else:
            yield ".IP \\(bu 2"
            yield from _wrapped(_inline(item))


def _table(rows: list[str]) -> Iterator[str]:
    """A row as an item of a list: its first cell is the name, and of the others the one that says
    what it means, or the first, needs no title."""
    head, _, *body = [
        [cell.strip().replace("\\|", "|") for cell in _CELL.split(row.strip()[1:-1])]
        for row in rows
    ]
    main = head.index("meaning") if "meaning" in head else 1
    for row in body:
        told = [row[main]]
        for number, (title, cell) in enumerate(zip(head, row, strict=True)):
            if cell and number not in (0, main):
                told.append(f"{title[:1].upper()}{title[1:]}: {cell}")
        text = " ".join(part if part.endswith(".") else f"{part}." for part in told)
        yield from _tagged(row[0], text)


def _tagged(name: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield _line(_inline(name))
    yield from _wrapped(_inline(meaning))


# -- text ------------------------------------------------------------------------------------------


def _inline(text: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        parts.append(_plain(text[at : found.start()]))
        at = found.end()
        if found["code"]:
            parts.append(rf"\fB{_plain(found['code'])}\fR")
        elif found["bold"]:
            parts.append(rf"\fB{_plain(found['bold'].replace('`', ''))}\fR")
        elif found["slant"]:
            parts.append(rf"\fI{_plain(found['slant'])}\fR")
        else:
            parts.append(_inline(found["text"]))
    return "".join([*parts, _plain(text[at:])])


def _plain(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")


def _line(text: str) -> str:
    """A line that begins with one of these would be a request."""
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_line(line) for line in lines]
