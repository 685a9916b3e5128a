"""What a page is drawn from: the watch at one moment, who looks, and the frame around every page.

A page is a title and parts. Each part has an id and changes as a whole, or row by row; the stream
of live changes sends those that have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from cronpoll import __version__
from cronpoll.core.view import Task
from cronpoll.web.access import Visitor
from cronpoll.web.face import Face
from cronpoll.web.html import Html, link, tag
from cronpoll.web.marks import LOGO
from cronpoll.web.watch import Watch

PAGE_LIMIT: Final = 200_000
"""Bytes of a page. Rows that do not fit are on the next one."""

_NAVIGATION: Final = (
    ("Overview", "/"),
    ("Timeline", "/timeline"),
    ("Plan", "/plan"),
    ("Spread", "/spread"),
    ("Audit", "/audit"),
    ("Manual", "/manual"),
)


ROWS_HERE: Final = Html("<tbody>{rows}</tbody>")


class Part(NamedTuple):
    """A piece of a page. `rows`: in the place of `ROWS_HERE` in its markup, each with an id of its
    own. `still`: it is not sent when it changes."""

    id: str
    markup: Html
    rows: tuple[tuple[str, Html], ...] = ()
    still: bool = False

    def whole(self) -> Html:
        if not self.rows:
            return self.markup
        rows = "".join(row for _, row in self.rows)
        # With its element: text that was typed may say {rows}, and never <tbody>.
        return Html(self.markup.replace(ROWS_HERE, f"<tbody>{rows}</tbody>", 1))


class Page(NamedTuple):
    """`here`: its place in the navigation. `live`: it has a stream of changes."""

    title: str
    parts: Sequence[Part]
    here: str = ""
    live: bool = True
    status: int = 200
    wall: bool = False


class Scene:
    """One look at everything, for one kind of visitor."""

    def __init__(self, watch: Watch, visitor: Visitor, query: dict[str, str], name: str) -> None:
        self.watch = watch
        self.visitor = visitor
        self.query = query
        self.name = name
        """Of the machine."""
        zone = watch.zone()
        self.now = watch.now
        self.face = Face(self.now, zone.tzinfo, zone.key)

    @property
    def tasks(self) -> dict[str, Task]:
        return self.watch.views

    @property
    def may_operate(self) -> bool:
        return self.visitor.operates

    def frame(self, page: Page, url: str) -> Html:
        """The whole document."""
        face = self.face
        clock = [
            tag("span", face.date(self.now), class_="date"),
            " ",
            tag("time", f"{face.local(self.now):%H:%M:%S}", class_="t", id="clock",
                data_now=f"{self.now.timestamp():.0f}",
                data_offset=str(int((face.local(self.now).utcoffset() or _NONE).total_seconds()))),
            " ",
            tag("abbr", f"{face.local(self.now):%Z}", title=face.zone_name),
        ]  # fmt: skip
        who = tag("span", self.visitor.name, class_="who", title=self.visitor.words)
        sign_in = None if self.may_operate else link("Sign in", "/sign-in", class_="who")
        header = tag(
            "header",
            link([LOGO, tag("b", "cronpoll")], "/", class_="brand", aria_label="cronpoll"),
            tag("span", self.name, class_="host"),
            tag("nav", [self._tab(*each, page.here) for each in _NAVIGATION], aria_label="Pages"),
            self._find(page),
            tag("div", clock, who if self.visitor.name else sign_in, class_="right"),
        )
        state = self.watch.book.scheduler_identifier
        footer = tag(
            "footer",
            tag("span", f"cronpoll {__version__}, scheduler {state[:8] or 'unknown'}, state "
                f"{self.watch.reader.place}"),
            tag("span", f"Times in {face.zone_name}"),
        )  # fmt: skip
        live = None
        if page.live:
            stream = f"/live?{urlencode({'page': url})}"
            live = tag("p", "", id="live", data_stream=stream, role="status", class_="gone")
        body = tag(
            "body",
            link("Skip to the content", "#main", class_="skip"),
            header,
            live,
            body_of(page),
            footer,
            class_="wall" if page.wall else None,
        )
        return Html(f"<!doctype html>\n{tag('html', _head(page.title), body, lang='en')}")

    def _find(self, page: Page) -> Html:
        """The one field that finds tasks and lines of output."""
        return tag(
            "form",
            tag("input", type="search", name="q", id="find", maxlength=200,
                value="" if page.here == "Timeline" else self.query.get("q", ""),
                aria_label="Find tasks and lines of output",
                placeholder="Find a task or output", title="Ctrl-K", aria_keyshortcuts="Control+K",
                autofocus=page.title == "Find"),
            method="get", action="/search", role="search", aria_label="Everywhere",
            class_="find",
        )  # fmt: skip

    def _tab(self, text: str, href: str, here: str) -> Html:
        return link(text, href, aria_current="page" if text == here else None)


def body_of(page: Page) -> Html:
    return tag("main", [part.whole() for part in page.parts], id="main")


def _head(title: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · cronpoll" if title else "cronpoll"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/page.css"),
        tag("script", src="/static/page.js", defer=True),
    )


class _None:
    @staticmethod
    def total_seconds() -> float:
        return 0.0


_NONE: Final = _None()


def section(
    id_: str, title: str, aside: str | Html | None, *content: Html | None, tools: Html | None = None
) -> Part:
    """A section with its head."""
    head = tag("h2", title, tag("small", aside) if aside else None)
    markup = tag(
        "section", tag("div", head, tools, class_="head"), *content, id=id_, aria_label=title
    )
    return Part(id_, markup)


def heading(
    title: str | Html, below: str | Html | None = None, above: Html | None = None,
    actions: Html | None = None,
) -> Part:  # fmt: skip
    """The answer of the page: one sentence, and what belongs to it."""
    return Part(
        "head",
        tag(
            "div",
            tag("div", above, tag("h1", title), tag("p", below, class_="lead") if below else None),
            actions,
            class_="answer",
            id="head",
        ),
    )


def section_of_rows(
    id_: str, title: str, rows: Iterable[Html], total: int, share: float, class_: str
) -> Part:
    """A section with a table of as many rows as fit into this share of a page."""
    shown: list[Html] = []
    left = PAGE_LIMIT * share
    for row in rows:
        left -= len(row.encode())
        if left < 0:
            break
        shown.append(row)
    aside = f"{total:,}" if len(shown) == total else f"{len(shown):,} of {total:,}"
    return section(id_, title, aside, tag("table", tag("tbody", shown), class_=class_))


def facts(*cells: tuple[str, Html | str | None, Html | str | None] | None) -> Html:
    """Facts side by side: a label, the fact, and a line below."""
    return tag(
        "dl",
        [
            tag(
                "div",
                tag("dt", cell[0]),
                tag("dd", cell[1]),
                tag("dd", cell[2], class_="q") if cell[2] else None,
            )
            for cell in cells
            if cell is not None
        ],
        class_="facts",
    )


def task_href(name: str, **query: str) -> str:
    return f"/task?{urlencode({'name': name, **query})}"


def task_link(name: str, **attributes: str) -> Html:
    return link(name, task_href(name), **attributes)


def same_page(query: dict[str, str], **changes: str | None) -> str:
    """This page with another query."""
    new = {**query, **changes}
    kept = {key: value for key, value in new.items() if value}
    return f"?{urlencode(kept)}"


def message(title: str, text: str, *, status: int = 200) -> Page:
    """A page that only says something."""
    return Page(title, [heading(title, text)], live=False, status=status)


def code(text: str) -> Html:
    return tag("code", text)
