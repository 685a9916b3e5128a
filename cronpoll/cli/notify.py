"""`cronpoll notify test`: tell a target of a registry file something, and see if it takes it."""

from __future__ import annotations

import sys

import click

from cronpoll.cli.common import NO, checked, fail, print_json, with_json
from cronpoll.core.text import visible
from cronpoll.core.view import View


class Tried(View, frozen=True):
    """A target was told something, to try it. `error`: why it has not taken it."""

    target: str
    notice_id: str
    taken: bool
    error: str | None = None


@click.group(short_help="Test a notification target.")
def notify() -> None:
    """Test the targets in the [notify] tables of a registry file."""


@notify.command(epilog="Example: cronpoll notify test ops -c tasks.toml")
@click.argument("name")
@click.option(
    "--config", "-c", metavar="FILE", default="tasks.toml", help="The registry file. [tasks.toml]"
)
@with_json(Tried)
def test(name: str, config: str, as_json: bool) -> None:
    """Send a test notice to the target NAME, from this process: the daemon may have other
    rights. Exits with 1 if the target does not accept it."""
    from cronpoll.config.check import Rules
    from cronpoll.core.notices import Message, Notice
    from cronpoll.daemon.delivery import deliver
    from cronpoll.runtime.clock import SystemClock
    from cronpoll.runtime.hostzone import HostZone

    now = SystemClock().wall()
    registry = checked(config, now, HostZone()().tzinfo, Rules(imports=False))
    if name not in registry.targets:
        known = ", ".join(registry.targets) or "none"
        fail(f"{config}: no table [notify.{name}]; there are: {known}", NO)
    title, text = "A test of cronpoll", "If you read this, notices arrive here."
    stamp = f"test-{now:%Y%m%dT%H%M%S%f}"
    whose = (each.name for each in registry.tasks if each.notify and name in (each.notify.to or ()))
    notice = Notice(stamp, "daemon", next(whose, None), name, "test", now, title, text)
    error = deliver(registry.target(name), Message(stamp, title, text, (notice,)))
    if as_json:
        print_json(Tried(name, stamp, error is None, error))
        sys.exit(0 if error is None else NO)
    if error is not None:
        fail(f"{name} did not accept it: {error}", NO)
    click.echo(f"{visible(name)} accepted it, id {stamp}")
