"""`cronpoll stop-run`: end a run."""

from __future__ import annotations

import click

from cronpoll.cli.asking import asked, with_json
from cronpoll.cli.common import with_place
from cronpoll.cli.completing import complete_task
from cronpoll.cli.selecting import order_several, single
from cronpoll.core.text import visible, well_formed
from cronpoll.daemon import wire


@click.command(
    "stop-run",
    epilog="Example: cronpoll stop-run nightly-backup",
    short_help="End a run that hangs.",
)
@click.argument("task", required=False, shell_complete=complete_task)
@click.argument("run", required=False)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Every task with this tag; repeat it for tasks with all of them.",
)
@with_place
@with_json
def stop_run(
    task: str | None,
    run: str | None,
    tags: tuple[str, ...],
    state_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """End a run of a task: the one named, or all that are open. TASK may be a pattern ('db-*').

    A process gets SIGTERM, then, 10 s later, SIGKILL; a coroutine is cancelled; a thread cannot be
    ended. The run is recorded as ended by hand, with the name of who asked. Its period counts as
    executed: it is neither retried nor restarted, even if the daemon dies before the run has ended.
    What came due meanwhile starts right after it, as after every run.
    """
    tasks = () if task is None else (task,)
    name = single(tasks, tags)
    if name is None:
        if run is not None:
            raise click.UsageError("RUN needs a single TASK, given by its name")
        order, place = wire.StopRun(task=""), (state_dir, config)
        order_several(order, tasks, tags, place, as_json, lambda told: told.state or "")
        return
    request = wire.StopRun(task=name, run_id=None if run is None else well_formed(run))
    answer = asked(request, wire.Rested, state_dir, config, as_json)
    if not as_json:
        click.echo(f"{visible(name)}: {visible(answer.state)}")
