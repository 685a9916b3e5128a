"""`cronpoll init`: a registry file to begin with, with every key explained where it stands."""

from __future__ import annotations

import json
import os
from typing import Final

import click

from cronpoll.cli.common import NO, UNREACHABLE, fail
from cronpoll.core.text import visible

STARTER: Final = """\
# Tasks of cronpoll. Check this file with:  cronpoll validate tasks.toml
# Run it with:                              cronpolld --config tasks.toml
# A running daemon notices changes by itself; a version that is wrong changes nothing.

[daemon]
# state_dir = "/var/lib/cronpoll"   # default: $STATE_DIRECTORY, else ~/.local/state/cronpoll
# python_path = ["."]               # where callbacks are imported from, relative to this file
# max_concurrent = 64               # runs at the same time
# stop_timeout = "60s"              # how long a stop waits for what runs

[defaults]                          # any option of a task; the task's own comes first
retry_delay = "5m"                  # after a failed run; "90s", "1h30m", or a number of seconds

[[task]]
name = "hello"
cron = "* * * * *"                  # minute hour day month weekday(0-6, Sunday 0); lists and ranges, no steps, no names
command = ["echo", "hello"]         # no shell; for one: ["sh", "-c", "..."]
# env = { PGHOST = "db" }           # beside a minimal environment
# cwd = "/srv"                      # default: where this file is
# user = "backup"                   # needs a daemon that runs as root

# [[task]]
# name = "nightly-backup"
# cron = "0 3 * * *"
# callback = "shop.jobs:backup"     # an async function runs on the loop, a plain one in a thread
# isolation = "process"             # or each run in an interpreter of its own
# args = ["full"]
# kwargs = { keep_days = 30 }
# timezone = "Europe/Berlin"        # default: the host's zone
# timeout = "1h"                    # then it is ended, which is a failure
# retry = { delay = "10m", backoff = 2, max_delay = "1h", max_attempts = 5 }
# repeated_hour = "both"            # "first": a minute that comes twice in autumn is due once
# catch_up = "once"                 # "if-run-before", "never": what becomes of minutes missed while nothing ran
# concurrency = "queue"             # "forbid", "replace", "allow": a minute that is due while the task still runs
# interrupted = "restart"           # "abandon": a run that died with the daemon is not started again
# on_change = "keep"                # "reset": an edited schedule clears the task's times
# suspend = false
# deadline = "2h"                   # later than this after it was due, it is not started
# window = { mode = "after", duration = "3h" }      # a second of its own in [N, N+3h]; "around", "before"
# seed = { strategy = "stable", salt = "host7" }    # "daily", "weekly"
# distribution = { name = "uniform" }               # "skewEarly", "skewLate", "normal", "exponential"
# only = { dow = ["1-5"] }                          # hours, dow, dom, months, between, dates
# avoid = { between = ["12:00-13:00"] }
# description = "the shop's database"
"""


@click.command(epilog="Example: cronpoll init tasks.toml")
@click.argument("file", default="tasks.toml", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def init(file: str, force: bool, as_json: bool) -> None:
    """Write a commented registry file to begin with."""
    # Put in place by renaming: with --force a link is replaced, not followed.
    written = f"{file}.new" if force else file
    try:
        with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as opened:
            opened.write(STARTER)
        if force:
            os.replace(written, file)
    except FileExistsError:
        fail(f"{written} is there already" + ("" if force else "; --force replaces it"), NO)
    except OSError as error:
        fail(f"{file}: {error.strerror}", UNREACHABLE)
    if as_json:
        click.echo(json.dumps({"written": file}))
    else:
        click.echo(f"{visible(file)} written; next: cronpoll validate {visible(file)}")
