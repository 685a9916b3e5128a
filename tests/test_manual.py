"""README and manual: short where they should be, made from the code's tables where there are any,
and with examples that work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import cronpoll
from cronpoll.cli.help import title, topics
from cronpoll.cli.main import main
from cronpoll.config.check import Rules, check
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from tests.tools import pages

PACKAGE = Path(cronpoll.__file__).parent
ROOT = PACKAGE.parent
PAGES = [ROOT / "README.md", *sorted((PACKAGE / "manual").glob("*.md"))]


def blocks(language: str) -> list[object]:
    """The examples in a language, each with the page and the number that it has there."""
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, text in enumerate(
            re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        )
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 11_264


@pytest.mark.parametrize("place", pages.pages())
def test_a_page_of_tables_is_what_the_code_says(place: str) -> None:
    """If not: python -m tests.tools.pages"""
    assert (ROOT / place).read_text() == pages.pages()[place]


@pytest.mark.parametrize(
    "part", pages.parts(), ids=lambda part: f"{part.page} {part.after}".strip()
)
def test_a_table_in_a_page_is_what_the_code_says(part: pages.Part) -> None:
    page = (ROOT / part.page).read_text()
    assert pages.with_part(page, part) == page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_registry_file_in_a_page_is_right(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(text)
    rules = Rules(imports=False, here=False)
    registry = check(str(file), SystemClock().wall(), HostZone()().tzinfo, rules)
    assert registry.errors == []


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_in_a_page_runs(text: str, tmp_path: Path) -> None:
    text = text.replace("asyncio.sleep(90)", "asyncio.sleep(0)")
    subprocess.run([sys.executable, "-c", text], cwd=tmp_path, check=True, timeout=120)


def commands() -> list[str]:
    found = [text for block in blocks("(?:sh|console)") for text in block.values[0].splitlines()]  # type: ignore[attr-defined]
    calls = (re.search(r"(?:^|[;|&$] |/bin/)cronpoll ([a-z][^|&;>#]+)", line) for line in found)
    return sorted({call[1].strip() for call in calls if call is not None})


@pytest.mark.parametrize("call", commands())
def test_a_command_in_a_page_can_be_called_so(call: str) -> None:
    name, *arguments = shlex.split(call)
    command = main.get_command(click.Context(main), name)
    assert command is not None, name
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    command.make_context(name, arguments)  # raises for an unknown option or a missing argument


# -- cronpoll help ---------------------------------------------------------------------------------


def test_help_lists_every_page_and_shows_each() -> None:
    listed = CliRunner().invoke(main, ["help"]).output
    for name, page in topics().items():
        assert f"  {name}" in listed
        assert title(page) in listed
        shown = CliRunner().invoke(main, ["help", name])
        assert (shown.exit_code, shown.output.strip()) == (0, page.strip())


def test_an_unknown_page_is_answered_with_the_one_that_was_meant() -> None:
    answer = CliRunner().invoke(main, ["help", "windwos"])
    assert answer.exit_code == 1
    assert "there is no page 'windwos' in the manual; did you mean windows?" in answer.output
