"""Completion of task names in a shell: wherever a command takes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from cronpoll.cli.completing import complete_task
from cronpoll.cli.main import main
from cronpoll.testing import World
from tests.cli.test_status import saved
from tests.tools.support import Job, minutes, simulated


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        elif command is not None:
            yield " ".join((*above, name)), command


@pytest.mark.parametrize(("name", "command"), [*commands(main)])
def test_whatever_takes_the_name_of_a_task_completes_it(name: str, command: click.Command) -> None:
    for parameter in command.params:
        if parameter.name in ("task", "tasks"):
            assert parameter._custom_shell_complete is complete_task, name


def completed(*words: str) -> list[str]:
    *before, last = words
    shell = ShellComplete(main, {}, "cronpoll", "_CRONPOLL_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), last)]


@simulated
async def test_names_come_from_the_state_or_from_the_file_that_was_typed(tmp_path: Path) -> None:
    world = World("2026-03-02T12:00:10Z")
    await world.boot([(name, "0 3 * * *", Job(), minutes(5)) for name in ("db-a", "db-b", "mail")])
    await world.stop()
    state = saved(world.disk, tmp_path)
    file = tmp_path / "tasks.toml"
    file.write_text('[[task]]\nname = "db-c"\ncron = "0 3 * * *"\ncommand = ["true"]\n')
    assert completed("history", "--state-dir", state, "db") == ["db-a", "db-b"]
    assert completed("next", str(file), "db") == ["db-c"]
    assert completed("next", "--config", str(file), "db-d", "db") == ["db-c"]
    assert completed("why", "--state-dir", str(tmp_path / "none"), "") == []
