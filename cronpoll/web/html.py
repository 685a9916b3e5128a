"""HTML as typed text. `Html` is markup; every other text becomes markup in one place, `esc`, and
`tag` calls it for whatever it is given. Nothing else on the page makes markup out of text.

There are no inline styles and no inline code here, because the page's policy forbids both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias

from cronpoll.core.text import visible, well_formed

_SPECIAL: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)
_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "path", "rect", "use",
                          "circle", "line"})  # fmt: skip


class Html(str):
    """Markup. Only this module and constants of the page make some."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
Value: TypeAlias = str | int | float | bool | None


def esc(text: str) -> Html:
    """Text as markup. What does not print is shown as an escape; it has no business in a page."""
    if isinstance(text, Html):
        return text
    if not text.isprintable():
        text = visible(well_formed(text))
    return Html(text.translate(_SPECIAL))


def tag(name: str, /, *children: Child, **attributes: Value) -> Html:
    """An element. `class_` and `data_x` are `class` and `data-x`; an attribute that is None or
    False is left out, True stands alone."""
    inside = "".join([_attribute(key, value) for key, value in attributes.items()])
    if name in _VOID:
        return Html(f"<{name}{inside}>") if name in _HTML_VOID else Html(f"<{name}{inside}/>")
    return Html(f"<{name}{inside}>{joined(children)}</{name}>")


_HTML_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


def joined(children: Iterable[Child]) -> Html:
    """Children, one after the other; None is nothing."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(esc(child))
        elif child is not None:
            parts.append(joined(child))
    return Html("".join(parts))


@cache
def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-").replace("--", ":")


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {_name(key)}"
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {_name(key)}="{esc(str(value))}"'


def link(text: Child, href: str, **attributes: Value) -> Html:
    return tag("a", text, href=href, **attributes)
