"""`cronpoll help`: the manual that ships with the program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

import click

from cronpoll.cli.common import NO, fail
from cronpoll.core.values import close

if TYPE_CHECKING:
    from rich.console import RenderableType


def topics() -> dict[str, str]:
    """The pages by topic: those for everybody first, each group in alphabetical order."""
    found = {
        entry.name.removesuffix(".md"): entry.read_text(encoding="utf-8")
        for entry in files("cronpoll.manual").iterdir()
        if entry.name.endswith(".md")
    }
    return dict(sorted(found.items(), key=lambda page: (page[0].startswith("from-"), page[0])))


def title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in topics() if name.startswith(incomplete)]


@click.command(
    "help", epilog="Example: cronpoll help windows", short_help="Show the manual, page by page."
)
@click.argument("topic", required=False, shell_complete=_complete)
def help_(topic: str | None) -> None:
    """Show a page of the manual, or the list of pages."""
    pages = topics()
    if topic is None:
        click.echo("\n".join(_contents(pages)))
        return
    if topic not in pages:
        hint = close(topic, pages)
        also = f"did you mean {hint}?" if hint else "`cronpoll help` lists them"
        fail(f"there is no page {topic!r} in the manual; {also}", NO)
    if not sys.stdout.isatty():
        click.echo(pages[topic])
        return
    from rich.console import Console

    console = Console(width=min(Console().width, 100))
    with console.pager(styles=True):
        console.print(_rendered(pages[topic]))


def _rendered(page: str) -> RenderableType:
    """A page for a terminal. A word that is wider than its column goes on below: without that, it
    would end in an ellipsis."""
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class Whole(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                if isinstance(part, Table):
                    for column in part.columns:
                        column.overflow = "fold"
                yield part

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": Whole}

    text = "\n".join(line for line in page.splitlines() if not line.startswith("<!--"))
    return Page(text)


def _contents(pages: dict[str, str]) -> Iterator[str]:
    widest = max(map(len, pages))
    yield "cronpoll help TOPIC shows a page of the manual:\n"
    for name, page in pages.items():
        yield f"  {name.ljust(widest)}  {title(page)}"
