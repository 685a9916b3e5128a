"""Writes the pages of the manual, and the parts of pages, that are made from tables in the code:
`python -m tests.tools.pages`. Tests compare them with the tables; this puts them right."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from cronpoll.audit import promises
from cronpoll.cli.common import EXIT_CODES
from cronpoll.cli.main import COMMANDS
from cronpoll.cli.main import main as main_command
from cronpoll.config import describe
from cronpoll.core import events as e
from cronpoll.core import machine
from cronpoll.core.metrics import METRICS, MOST_TASKS
from cronpoll.daemon.main import main as cronpolld
from cronpoll.operator import manifests
from cronpoll.operator.fields import FIELDS, Field
from cronpoll.operator.main import main as kron_operator
from tests.tools import manpages

ROOT: Final = Path(__file__).parent.parent.parent
MANUAL: Final = "cronpoll/manual"
STATES: Final = f"{MANUAL}/states.md"
DAEMON: Final = f"{MANUAL}/daemon.md"
KUBERNETES: Final = "cronpoll/manual/kubernetes.md"
MANIFESTS: Final = ROOT / "packaging" / "kubernetes"


class Part(NamedTuple):
    """A part of a page: it follows `after`, begins with `first`, and ends before `then`."""

    page: str
    after: str
    first: str
    then: str
    text: str


def parts() -> list[Part]:
    state, fence = "stateDiagram-v2", "```\n"
    return [
        Part(f"{MANUAL}/library.md", "", "| option |", "| `spread`", describe.library()),
        Part(f"{MANUAL}/proof.md", "", "| guarantee |", "\n\n", promises.table()),
        Part(STATES, "\nThe scheduler:", state, fence, _diagram("SCHEDULER", "uninitialized")),
        Part(STATES, "\nEach task:", state, fence, _diagram("TASK", "awaiting-run")),
        Part(STATES, "\nIts polling:", state, fence, _diagram("POLLING", "inactive")),
        Part(KUBERNETES, "<!-- fields", "-->\n", "<!-- end", f"-->\n{_fields()}"),
        Part(KUBERNETES, "<!-- rights", "-->\n", "<!-- end", f"-->\n{_rights()}"),
        Part(KUBERNETES, "<!-- commands", "-->\n", "<!-- end", f"-->\n{_operator()}"),
        Part(DAEMON, "<!-- options", "-->\n", "<!-- end", f"-->\n{_options(cronpolld)}"),
    ]


def _fields() -> str:
    def otherwise(field: Field) -> str:
        default = field.schema.get("default")
        told = field.otherwise or ("it is required" if field.required else "")
        return told or f"`{str(default).lower() if isinstance(default, bool) else default}`"

    return "".join(f"| `{each.name}` | {each.help} | {otherwise(each)} |\n" for each in FIELDS)


def _rights() -> str:
    rights = (*manifests.RIGHTS, *manifests.LEASE_RIGHTS)
    return "".join(f"| {each.verb} `{each.resource}` | {each.why} |\n" for each in rights)


def _operator() -> str:
    text = ""
    for name, command in kron_operator.commands.items():
        help_ = _flowing(command.help or "")
        text += f"\n### kron-operator {name}\n\n{help_}\n\n{_options(command)}"
    return f"{text}\n"


def _options(command: click.Command, *without: str) -> str:
    """The options of a command as a list; those that every command has are left out."""
    with click.Context(command) as context:
        shown = [
            record
            for parameter in command.get_params(context)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(context)) is not None
            and not {"--help", "--version", *without} & set(parameter.opts)
        ]
    return "".join(f"- `{option}`: {meaning or 'See above.'}\n" for option, meaning in shown)


def _diagram(table: str, initial: str) -> str:
    return machine.mermaid(getattr(machine, table), initial).rstrip("\n") + "\n"


def with_part(page: str, part: Part) -> str:
    begin = page.index(part.first, page.index(part.after))
    return page[:begin] + part.text + page[page.index(part.then, begin) :]


# -- whole pages -----------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """The pages that are nothing but a table of the code, by their place."""
    return {
        f"{MANUAL}/commands.md": _commands(),
        f"{MANUAL}/options.md": describe.options(),
        f"{MANUAL}/events.md": _events(),
        f"{MANUAL}/metrics.md": _metrics(),
    }


def man_pages() -> dict[str, str]:
    """The man pages, from the manual as it is."""
    return manpages.made(lambda topic: (ROOT / MANUAL / f"{topic}.md").read_text())


def _commands() -> str:
    text = (
        "# Commands\n\n`cronpoll COMMAND --help` prints the same.\n\n| exit code | meaning |\n"
        "|---|---|\n"
    )
    text += "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    text += _OF_ALL
    for name in COMMANDS:
        command = main_command.get_command(click.Context(main_command), name)
        assert command is not None
        text += "".join(_command(name, command))
    return text


_OF_ALL: Final = """
## What the commands have in common

Most commands need no daemon: they work with files, or read the state directory of a daemon,
whether it is running or not. `run`, `at`, `suspend`, `resume`, `stop-run` and `reload` talk to a
running daemon over its control socket, which is open to the daemon's user, to root, and to the
group that `[daemon] operators` names.

- `--state-dir DIR`: The state directory of the daemon. The same as `CRONPOLL_STATE_DIR`.
- `-c, --config FILE`: The registry file of the daemon: it is the running one that was started with
  this file, whatever the file says now; if there is none, the `state_dir` in the file counts.
- `--json`: Print the answer as JSON: times in RFC 3339, durations in milliseconds. Failures are
  JSON, too.
- `--json-schema`: Print the schema of that JSON, and exit.

Without `--state-dir` and `--config` it is the directory that the daemon uses by default:
`$STATE_DIRECTORY`, else `$XDG_STATE_HOME/cronpoll`, else `~/.local/state/cronpoll`; for root
`/var/lib/cronpoll`, the directory of the system service, if it is there.

Times are written as in ISO 8601: `2026-11-01`, `2026-11-01T01:30`, or with an offset,
`2026-11-01T01:30+01:00`. Without an offset, the time zone is that of this machine; for `why`
and `explain`, that of the task. A time that the clock shows twice means the first occurrence; one
that it skips is refused.

Output is coloured on terminals, unless `NO_COLOR` is set. Characters that do not print are shown
as escapes. Completion for bash, zsh and fish comes with the Debian package; elsewhere use
`eval "$(_CRONPOLL_COMPLETE=bash_source cronpoll)"`, with `zsh_source` or `fish_source` for the
other shells.
"""


def _command(name: str, command: click.Command) -> Iterator[str]:
    with click.Context(command, info_name=f"cronpoll {name}") as context:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"\n## {name}\n\n`cronpoll {name} {usage}`\n"
        yield f"\n{_flowing(command.help or '')}\n"
        everywhere = ("--json", "--json-schema", "--state-dir", "--config")
        if shown := _options(command, *everywhere):
            yield f"\n{shown}"
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield from _command(f"{name} {inner}", found)
        elif command.epilog:
            yield f"\n```sh\n{command.epilog.removeprefix('Example: ')}\n```\n"


def _flowing(text: str) -> str:
    """A docstring without its indentation; click's marks for lists are not for people."""
    return inspect.cleandoc(text).replace("\b\n", "")


def _events() -> str:
    text = (
        "# Events\n\nEverything that happens is one of these events, in the journal and in the log. Names "
        "and required\nfields never change. Times are RFC 3339 in UTC, durations are "
        "milliseconds. Fields in\nitalics are omitted where they have nothing to say.\n"
    )
    levels = {10: "debug", 20: "info", 30: "warning", 40: "error"}
    for kind in sorted(e.CATALOGUE.values(), key=lambda kind: kind.__name__):
        kept = "journal and log" if kind.journaled else "log"
        fields = ", ".join(
            f"`{field.encode_name}`" if field.required else f"*`{field.encode_name}`*"
            for field in msgspec.structs.fields(kind)
        )
        written = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
        explained = re.sub(
            "`([a-z_]+)`", lambda named, to=written: f"`{to.get(named[1], named[1])}`", kind.__doc__
        )
        text += f"\n## {kind.__name__}\n\n{_flowing(explained)}\n\n"
        text += f"Level {levels[kind.level]}; {kept}. Fields: {fields}.\n"
    return text


def _metrics() -> str:
    text = (
        "# Metrics\n\n`cronpoll metrics` prints them, and `--output FILE` writes them for the textfile "
        "collector of the\nnode exporter; `cronpoll serve` has them under `/metrics`. Gauges are computed "
        "from the record each time, so\na restart resets nothing.\n\n"
        "Counters and histograms count each due time and each run once, when its outcome is known, "
        "and do not\ndepend on how much history is kept: `rate()` and `increase()` work. "
        "`cronpoll serve --counters\nFILE` continues after a restart from the numbers in that file, and "
        "adds what happened while it was down, up to a week\n(a day if the record is very large); without "
        "a file it starts counting at 0. `--output FILE` continues from the numbers in a comment\nof that "
        "file; printed, they are those of the last 24 hours. What was due more than a week ago, or has "
        "no outcome after a\nweek, is not counted. The daemon's own counters start at 0 when it starts.\n\n"
        f"With up to {MOST_TASKS:,} tasks, each task has its own series from its registration on. With "
        "more, only those do that need\nattention (overdue, failing, interrupted, quarantined, held, "
        "suspended), because most servers could not\ntake a million series. "
        "`cronpoll_tasks` counts all tasks by state, `cronpoll_due` all due times by outcome.\n"
        "\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
    )
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        text += f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |\n"
    return text


def main() -> None:
    for path, text in manifests.files().items():
        (MANIFESTS / path).parent.mkdir(parents=True, exist_ok=True)
        (MANIFESTS / path).write_text(text)
    for place, text in pages().items():
        _write(place, text)
    for part in parts():
        _write(part.page, with_part((ROOT / part.page).read_text(), part))
    for place, text in man_pages().items():
        _write(place, text)


def _write(place: str, text: str) -> None:
    file = ROOT / place
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
        print(place)


if __name__ == "__main__":
    main()
