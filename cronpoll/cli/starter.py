"""`cronpoll init`: a registry file to begin with, with every key explained where it stands."""

from __future__ import annotations

from typing import Final

import click

from cronpoll.cli.common import NO, UNREACHABLE, fail, print_json, with_json
from cronpoll.core.text import visible, well_formed
from cronpoll.core.view import View
from cronpoll.files import replace_file

SCHEMA_LINE: Final = "#:schema ./cronpoll.schema.json"
"""By which editors find the schema; it stands in the first line of a file."""
STARTER: Final = (
    f"{SCHEMA_LINE}\n"
    """\
# For editors; made by:                     cronpoll schema > cronpoll.schema.json
# Tasks of cronpoll. Check this file with:  cronpoll validate tasks.toml
# Run it with:                              cronpolld --config tasks.toml
# A running daemon notices changes by itself; a version that is wrong changes nothing.

# include = ["conf.d/*.toml"]         # more files with tasks; all of them are one registry

[daemon]
# state_dir = "/var/lib/cronpoll"   # default: $STATE_DIRECTORY, else ~/.local/state/cronpoll
# python_path = ["."]               # where callbacks are imported from, relative to this file
# max_concurrent = 64               # runs at the same time
# stop_timeout = "60s"              # how long a stop waits for what runs
# history = "90d"                   # how much of the past is kept
# history_bytes = 268435456         # and at most so many bytes of it
# output = "14d"                    # how long the output of runs is kept that succeeded
# output_failed = "90d"             # and of all others
# output_bytes = 268435456          # of all runs together
# output_head_bytes = 65536         # of one run, from its beginning
# output_tail_bytes = 196608        # and from its end
# operators = "adm"                 # a group that may give orders, besides root and the daemon's user
# allow_empty = false               # true: a file without any task is meant
# notify = "ops"                    # who is told of trouble of the daemon itself

[notify.ops]                        # whom to tell: `notify` of a task, or of [defaults], names it
command = ["logger", "-t", "cronpoll", "-f", "/dev/stdin"]
#   instead of command:  mail = "root"  or  webhook = "https://example.org/hook"
#   or  ping = "https://hc-ping.com/KEY/{task}"  or  apprise = "ntfys://ntfy.example.org/ops"

[defaults]                          # any option of a task; the task's own comes first
retry_delay = "5m"                  # after a failed run; "90s", "1h30m", or a number of seconds

[[task]]
name = "hello"
cron = "* * * * *"                  # minute hour day month weekday(0-6, Sunday 0); lists and ranges, no steps, no names
# dialect = "crontab"               # cron may have steps, names and macros; they are translated when this is read
command = ["echo", "hello"]         # no shell; for one: ["sh", "-c", "..."]
# env = { PGHOST = "db", PGPASSWORD = { file = "/run/secrets/pg" } }  # or { credential = "pg" }; read at each start
# env_file = "/etc/default/shop"    # lines NAME=value
# inherit_env = ["HTTP_PROXY"]      # from the daemon's environment
# cwd = "/srv"                      # default: where this file is
# user = "backup"                   # needs a daemon that runs as root
# nice = 10                         # the higher, the more it gives way
# umask = "027"
# success_codes = [0, 1]            # exit codes that are no failure
# limits = { memory = "512M", cpu = "10m", files = 1024 }

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
# on_start = "boot"                 # "daemon": also when the machine, or the daemon, has started; then cron may be left out
# on_change = "keep"                # "reset": an edited schedule clears the task's times
# suspend = false
# deadline = "2h"                   # later than this after it was due, it is not started
# window = { mode = "after", duration = "3h" }      # a second of its own in [N, N+3h]; "around", "before"
# seed = { strategy = "stable", salt = "host7" }    # "daily", "weekly"
# distribution = { name = "uniform" }               # "skewEarly", "skewLate", "normal", "exponential"
# only = { dow = ["1-5"] }                          # hours, dow, dom, months, between, dates
# avoid = { between = ["12:00-13:00"] }
# description = "the shop's database"
# lock = "database"                 # tasks with the same lock never run at the same time
# notify = { to = "ops", after = 3, remind = "1d" }  # recovered, missed, overdue, output
# tags = ["db", "nightly"]          # by which commands find tasks that belong together

# [[task]]
# name = "backup-copied"
# after = "nightly-backup"          # instead of cron: each time that has succeeded, for the same period
# command = ["rclone", "copy", "/var/backups", "remote:backups"]
"""
)


class Begun(View, frozen=True):
    """The file that was written."""

    written: str


@click.command(epilog="Example: cronpoll init tasks.toml")
@click.argument("file", default="tasks.toml", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@with_json(Begun)
def init(file: str, force: bool, as_json: bool) -> None:
    """Write a commented registry file to begin with."""
    try:
        if force:
            replace_file(file, STARTER.encode(), 0o644)
        else:
            with open(file, "x") as opened:
                opened.write(STARTER)
    except FileExistsError:
        fail(f"{file} is there already; --force replaces it", NO)
    except OSError as error:
        fail(f"{file}: {error.strerror}", UNREACHABLE)
    if as_json:
        print_json(Begun(well_formed(file)), indent=0)
    else:
        click.echo(f"{visible(file)} written; next: cronpoll validate {visible(file)}")
