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
from cronpoll.config import spreads
from cronpoll.config.check import Rules, check
from cronpoll.daemon.main import main as cronpolld
from cronpoll.operator.main import main as kron_operator
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.hostzone import HostZone
from tests.cli.test_status import on_a_terminal
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
    program = tmp_path / "test_program.py"
    program.write_text(text.replace("asyncio.sleep(90)", "asyncio.sleep(0)"))
    runner = ["-m", "pytest", "-q"] if "\ndef test_" in text else []
    subprocess.run([sys.executable, *runner, program.name], cwd=tmp_path, check=True, timeout=120)


PROGRAMS = {"cronpoll": main, "cronpolld": cronpolld, "kron-operator": kron_operator}


def commands() -> list[str]:
    found = [
        line
        for block in blocks("(?:sh|console)")
        for line in block.values[0].replace("\\\n", "").splitlines()  # type: ignore[attr-defined]
    ]
    calls = (
        re.search(rf"(?:^|[;|&$] |/bin/)((?:{'|'.join(PROGRAMS)}) [^|&;>#]+)", each)
        for each in found
    )
    return sorted({call[1].strip() for call in calls if call is not None})


@pytest.mark.parametrize("call", commands())
def test_a_command_in_a_page_can_be_called_so(call: str) -> None:
    name, *arguments = shlex.split(call)
    command: click.Command | None = PROGRAMS[name]
    while isinstance(command, click.Group):
        name = arguments.pop(0)
        command = command.get_command(click.Context(command), name)
    assert command is not None, name
    command.make_context(name, arguments)  # raises for an unknown option or a missing argument


def test_the_page_about_windows_lists_every_key_of_their_tables() -> None:
    _, *tables = re.split(r"^\| (?:key|clause) \|.*$", topics()["windows"], flags=re.MULTILINE)
    assert [set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) for table in tables] == [
        {"mode", "duration"},
        {"name"}.union(*spreads._PARAMETERS.values()),
        {"strategy", "salt"},
        {*spreads._CLAUSES, "between", "dates"},
    ]


@pytest.mark.parametrize("place", pages.man_pages())
def test_a_man_page_is_what_the_manual_says(place: str) -> None:
    assert (ROOT / place).read_text() == pages.man_pages()[place], "python -m tests.tools.pages"


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


@pytest.mark.parametrize("name", ["options", "kubernetes"])
def test_on_a_narrow_terminal_no_word_of_a_page_is_cut_off(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "cat")
    shown = on_a_terminal(["help", name], 80)
    assert "meaning" in shown
    assert "…" not in shown
    assert "<!--" not in shown
