"""The manual's Markdown as HTML: headings, paragraphs, lists, tables, code and links, as our own
pages use them. What it does not know it shows as it stands. Everything passes `esc`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cronpoll.web.html import Html, esc, joined, tag

_INLINE: Final = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<slant>[^*\s][^*]*)\*"
    r"|\[(?P<text>[^\]]+)\]\((?P<href>[^)\s]+)\)"
)
_SAFE: Final = re.compile(r"https?://|/|#|[a-z0-9-]+\.md")


def rendered(text: str) -> Html:
    return Html("".join(_blocks(text.splitlines())))


def _inline(text: str) -> Html:
    parts: list[Html] = []
    at = 0
    for found in _INLINE.finditer(text):
        parts.append(esc(text[at : found.start()]))
        at = found.end()
        if found["code"]:
            parts.append(tag("code", found["code"]))
        elif found["bold"]:
            parts.append(tag("b", _inline(found["bold"])))
        elif found["slant"]:
            parts.append(tag("em", found["slant"]))
        else:
            parts.append(_link(found["text"], found["href"]))
    parts.append(esc(text[at:]))
    return joined(parts)


def _link(text: str, href: str) -> Html:
    if not _SAFE.match(href):
        return _inline(text)
    if href.endswith(".md") and "/" not in href:
        href = f"/manual?page={href.removesuffix('.md')}"
    return tag("a", _inline(text), href=href, rel="noreferrer")


def _blocks(lines: list[str]) -> Iterator[Html]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")),
                       len(lines))  # fmt: skip
            body = Html("\n").join(esc(each) for each in lines[at + 1 : end])
            yield tag("pre", tag("code", Html(body)), tabindex=0)
            at = end + 1
        elif (level := len(line) - len(line.lstrip("#"))) and line[level : level + 1] == " ":
            yield tag(f"h{min(level, 4)}", _inline(line[level + 1 :]), id=_anchor(line))
            at += 1
        elif line.startswith("|"):
            end = _while(lines, at, lambda each: each.startswith("|"))
            yield _table(lines[at:end])
            at = end
        elif _is_item(line):
            end = _while(lines, at, lambda each: bool(each.strip()))
            yield _list(lines[at:end])
            at = end
        else:
            end = _while(lines, at, lambda each: bool(each.strip()) and not each.startswith(
                ("#", "```", "|")) and not _is_item(each))  # fmt: skip
            end = max(end, at + 1)
            yield tag("p", _inline(" ".join(lines[at:end])))
            at = end


def _while(lines: list[str], at: int, holds: object) -> int:
    assert callable(holds)
    while at < len(lines) and holds(lines[at]):
        at += 1
    return at


def _anchor(line: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", line.lower()).strip("-")


def _is_item(line: str) -> bool:
    return bool(re.match(r"(?:[-*]|\d+\.) ", line))


def _list(lines: list[str]) -> Html:
    items: list[str] = []
    for line in lines:
        if _is_item(line):
            items.append(line.partition(" ")[2])
        else:
            items[-1] += f" {line.strip()}"
    kind = "ol" if lines[0][0].isdigit() else "ul"
    return tag(kind, [tag("li", _inline(item)) for item in items])


def _table(lines: list[str]) -> Html:
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines
    ]
    head, body = rows[0], [row for row in rows[1:] if not set("".join(row)) <= set("-: ")]
    return tag(
        "table",
        tag("thead", tag("tr", [tag("th", _inline(cell), scope="col") for cell in head])),
        tag("tbody", [tag("tr", [tag("td", _inline(cell)) for cell in row]) for row in body]),
    )
