"""`cronpoll import`: a crontab or krontab becomes a registry file. What its lines mean is asked of
`crontab` and `krontab`; here it is written down.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import stat
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, NoReturn

import click

from cronpoll.cli.common import NO, UNREACHABLE, fail, print_json, with_json
from cronpoll.cli.starter import SCHEMA_LINE
from cronpoll.convert import krontab
from cronpoll.convert.crontab import Job, Mail, Translation, translate
from cronpoll.convert.environment import PATH
from cronpoll.convert.guessing import guess_owner, guess_system
from cronpoll.convert.lines import Remark, lines_of
from cronpoll.convert.names import Names, slug
from cronpoll.core.errors import abbreviate
from cronpoll.core.text import count, visible, well_formed
from cronpoll.core.view import View
from cronpoll.files import open_file, replace_file

LARGE: Final = 2_000
"""Lines from which on an import takes long enough to show how far it is."""
_WRONG_CALL: Final = 2
_BUILT_IN: Final = frozenset(("cd", "export", "eval", "exec", "set", "umask", "ulimit", "source"))
"""Words that a shell understands by itself, where there is no program of the name."""
_LINE_LENGTH: Final = 160
_UNPRINTED: Final = re.compile(r"[^\x20-\x7e\n\t]")

SERVICE: Final = "cronpoll"
"""The user and group that the system's service has."""
_HIDDEN: Final = ("/home", "/root", "/run/user")
"""What a unit with ProtectHome=yes cannot see."""
_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rb"(?:passw|passphrase|secret|token|api_?key|private_?key|credential|pgpass)\w*[\"']?\s*[=:]"
        rb"\s*[\"']?[^\s\"']",
        rb"--?(?:password|passwd|token|secret)[ =]\S",
        rb"://[^/\s:@\"]+:[^/\s@\"]+@",
        rb"\b(?:bearer|basic) [A-Za-z0-9+/._=-]{8}",
        rb"\bmysql\S*\b[^\n]* -p[^\s\"]",
    )
)
"""What looks as if it must not be read by everybody. A file that is closed in vain is opened by one
command; the other way round nothing helps."""

AnyTranslation = Translation | krontab.Translation

# Each default with what a reader of the file has to know about it.
_DEFAULTS: Final = (
    ('catch_up = "never"', "cron does not make up for what it missed,"),
    ('concurrency = "allow"', "nor wait for an earlier run to end,"),
    ('interrupted = "abandon"', "nor start again what a crash has ended,"),
    ("retry = { max_attempts = 1 }", "nor try again what failed,"),
    ('repeated_hour = "first"', "nor repeat a fixed time when the clock is put back"),
)

_Begin = Callable[[str], Callable[[int], None]]
"""Begins a stretch of work and gives the function that counts its lines."""


class Remarked(View, frozen=True):
    """Something to be said about a line of a crontab, which stands there as `text`."""

    line: int
    reason: str
    text: str


class Imported(View, frozen=True, kw_only=True, omit_defaults=True):
    """What was made of a crontab. `tasks`: each with its line, and what a [[task]] has. `system`
    and `settings`, the numbers of the environment lines that were followed: not of a krontab.
    `toml`: the registry file, if it was not written."""

    file: str
    system: bool | None = None
    settings: tuple[int, ...] | None = None
    complete: bool
    tasks: tuple[dict[str, Any], ...]
    untranslated: tuple[Remarked, ...]
    notes: tuple[Remarked, ...]
    toml: str | None = None


def remarked(remarks: Iterable[Remark]) -> tuple[Remarked, ...]:
    return tuple(
        Remarked(each.line, well_formed(each.reason), well_formed(each.text)) for each in remarks
    )


@click.command("import", epilog="Example: cronpoll import /etc/crontab --output tasks.toml")
@click.argument("crontab", metavar="CRONTAB")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write the registry file there. [default: standard output]",
)
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@click.option(
    "--system/--user",
    "system",
    default=None,
    help="Whether there is a user column, as in /etc/crontab. [default: guessed from place and "
    "content]",
)
@click.option(
    "--cronie",
    is_flag=True,
    help="Read it as cronie does where Debian's cron differs: two backslashes, blanks before a "
    "closing quote.",
)
@click.option(
    "--kron",
    is_flag=True,
    help="The file is a krontab: Kron's syntax, with @win(after,3h) and name=...",
)
@click.option(
    "--from-cronjob",
    is_flag=True,
    help="The file has CronJobs of Kubernetes, as YAML or JSON: write KronJobs.",
)
@click.option(
    "--to-kronjob",
    is_flag=True,
    help="The file is a registry file: write its command tasks as KronJobs; needs --image.",
)
@click.option("--image", metavar="IMAGE", help="With --to-kronjob: in which commands run.")
@with_json(Imported, "Print a report as JSON; without --output it has the file in it.")
def import_(
    crontab: str,
    output: str | None,
    force: bool,
    system: bool | None,
    cronie: bool,
    kron: bool,
    from_cronjob: bool,
    to_kronjob: bool,
    image: str | None,
    as_json: bool,
) -> None:
    """Turn a crontab into a registry file that does what cron did.

    CRONTAB is a file, or - for standard input. Steps, names, macros, percent signs and environment
    lines are translated; comments are kept. What has no exact translation is reported with its line
    and the reason, also as a comment in the file. Exits with 1 if there is such a line, or no job
    at all and hence no file; with 3 if a file cannot be read or written.
    """
    if from_cronjob or to_kronjob:
        _kronjobs(crontab, output, force, image, from_cronjob=from_cronjob)
        return
    if kron and system is not None:
        fail(
            "a krontab has no user column: --kron goes with neither --system nor --user",
            _WRONG_CALL,
        )
    if output == "-":
        output = None
    if output is not None and not force and os.path.lexists(output):
        fail(f"{output}: exists already; --force replaces it", _WRONG_CALL)
    file, content = _read(crontab)
    place = "" if crontab == "-" else os.path.abspath(crontab)
    with _progress(len(lines_of(content))) as begin:
        translation: AnyTranslation
        home = None
        if kron:
            translation = krontab.translate(content, begin("Translating"))
        else:
            translation, home = _of_crontab(content, place, system, cronie, begin)
        if not translation.jobs:
            _nothing(file, translation, as_json)
        written = registry_text(file, translation, home, begin("Writing")).encode()
    mode = _mode(written) if output is not None else None
    if output is not None and mode is not None:
        _write(output, written, force, mode)
    _say(file, translation, written, output, _cautions(translation, home, output, mode), as_json)
    sys.exit(NO if translation.untranslated else 0)


def _say(
    file: str,
    translation: AnyTranslation,
    written: bytes,
    output: str | None,
    cautions: Iterable[str],
    as_json: bool,
) -> None:
    """What was made of it."""
    if as_json:
        print_json(_report(file, translation, None if output is not None else written.decode()))
    elif output is None:
        click.echo(written, nl=False)
    for line in (*_complaints(file, translation), *cautions):
        click.echo(line, err=True)
    if not as_json and output is not None:
        click.echo(f"{visible(output)}: {_written(translation)}", err=True)


def _kronjobs(
    file: str, output: str | None, force: bool, image: str | None, *, from_cronjob: bool
) -> None:
    from cronpoll.cli.kronjobs import from_cronjobs, from_registry

    if from_cronjob:
        from_cronjobs(file, output, force)
    elif image is None:
        fail("--to-kronjob needs --image IMAGE: a command runs in a container", _WRONG_CALL)
    else:
        from_registry(file, output, force, image)


def _of_crontab(
    content: bytes, place: str, system: bool | None, cronie: bool, begin: _Begin
) -> tuple[Translation, str | None]:
    """The translation, and the home directory that commands began in, if it is not said in the
    crontab."""
    if system is None:
        system = guess_system(place, content, is_account, is_program)
        if system is None:
            fail(
                "is the word before each command a user? Say --system if it is, --user if it "
                "belongs to the command",
                _WRONG_CALL,
            )
    owner = None if system else guess_owner(place)
    translation = translate(
        content, system=system, owner=owner, cronie=cronie, advance=begin("Translating")
    )
    return translation, None if system or owner is not None else _home()


def is_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def is_program(name: str) -> bool:
    return shutil.which(name) is not None or name in _BUILT_IN


def _nothing(file: str, translation: AnyTranslation, as_json: bool) -> NoReturn:
    """There is no job. A registry file without tasks would be refused: none is written."""
    if as_json:
        print_json(_report(file, translation, ""))
    for line in _complaints(file, translation):
        click.echo(line, err=True)
    sys.exit(NO)


def _written(translation: AnyTranslation) -> str:
    lost = len(translation.untranslated)
    more = f"; {count(lost, 'line was', 'lines were')} not translated" if lost else ""
    return f"{count(len(translation.jobs), 'task')} written{more}"


def _read(crontab: str) -> tuple[str, bytes]:
    """The name to show, and the content."""
    try:
        if crontab == "-":
            return "<stdin>", sys.stdin.buffer.read()
        with open(crontab, "rb") as opened:
            return crontab, opened.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        fail(f"{crontab}: cannot be read: {getattr(error, 'strerror', None) or error}", UNREACHABLE)


def _home() -> str | None:
    """Where whoever calls is at home, if that can be written down."""
    home = os.path.expanduser("~")
    return home if visible(home) == home else None


class _Mode(NamedTuple):
    """Who may read a new file: its mode, and its group if that is not the caller's. `closed`: it
    seems to hold secrets, and there is no group that could have it."""

    bits: int
    group: int | None = None
    closed: bool = False


def _mode(written: bytes) -> _Mode:
    """Root writes for the service, which runs as a user of its own and has to read the file."""
    if os.geteuid() != 0:
        return _Mode(0o600)
    try:
        return _Mode(0o640, grp.getgrnam(SERVICE).gr_gid)
    except KeyError:
        pass
    secret = any(pattern.search(written) for pattern in _SECRETS)
    return _Mode(0o600, closed=True) if secret else _Mode(0o644)


def _write(output: str, written: bytes, force: bool, new: _Mode) -> None:
    """Write the file. An existing one is replaced at once, so that a daemon that watches it never
    sees half of it, and keeps its owner and its rights."""
    try:
        if force:
            output = os.path.realpath(output)
            with suppress(FileNotFoundError):
                found = os.stat(output)
                if stat.S_ISREG(found.st_mode):
                    replace_file(output, written, like=found)
                else:
                    with open(output, "wb") as device:
                        device.write(written)
                return
        with open(open_file(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as opened:
            try:
                opened.write(written)
                if new.group is not None:
                    os.fchown(opened.fileno(), -1, new.group)
                os.fchmod(opened.fileno(), new.bits)
                opened.flush()
            except OSError:
                os.unlink(output)
                raise
    except (OSError, ValueError) as error:
        fail(
            f"{output}: cannot be written: {getattr(error, 'strerror', None) or error}", UNREACHABLE
        )


# -- what is said ----------------------------------------------------------------------------------


def _complaints(file: str, translation: AnyTranslation) -> Iterator[str]:
    remarks = [(remark, "") for remark in translation.untranslated]
    remarks += [(remark, "note: ") for remark in translation.notes]
    for remark, kind in sorted(remarks, key=lambda pair: pair[0].line):
        yield visible(f"{file}:{remark.line}: {kind}{remark.reason}")
    if not translation.jobs:
        yield visible(f"{file}: there is no job in it that could be translated: nothing is written")


def _cautions(
    translation: AnyTranslation, home: str | None, output: str | None, mode: _Mode | None
) -> Iterator[str]:
    """What the service would stumble over that cron did not."""
    if output is None or mode is None:
        return
    if mode.closed:
        yield visible(
            f"{output}: note: it seems to hold passwords or the like, so only root may read it; a "
            f"service with a user of its own needs: chgrp GROUP {output} && chmod 640 {output}"
        )
    if os.geteuid() != 0:
        return
    begins = {home, *(_table(job).get("cwd") for job in translation.jobs)}
    hidden = sorted(place for place in begins if place and _is_hidden(place))
    if hidden:
        yield visible(
            f"note: commands begin in {', '.join(hidden[:3])}, which the unit's ProtectHome=yes "
            "hides from them; choose another cwd, or say ProtectHome=no in a drop-in"
        )


def _is_hidden(place: str) -> bool:
    return any(place == hidden or place.startswith(f"{hidden}/") for hidden in _HIDDEN)


def _report(file: str, translation: AnyTranslation, toml: str | None) -> Imported:
    of_cron = translation if isinstance(translation, Translation) else None
    return Imported(
        file=well_formed(file),
        system=None if of_cron is None else of_cron.system,
        settings=None if of_cron is None else tuple(of_cron.settings),
        complete=not translation.untranslated,
        tasks=tuple({"line": job.line, **_table(job)} for job in translation.jobs),
        untranslated=remarked(translation.untranslated),
        notes=remarked(translation.notes),
        toml=toml,
    )


@contextmanager
def _progress(lines: int) -> Iterator[_Begin]:
    """What begins a stretch of work and gives the function that counts its lines; shown only if
    somebody is watching."""
    if lines < LARGE or not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:

        def begin(what: str) -> Callable[[int], None]:
            bar = progress.add_task(what, total=lines)
            return lambda number: progress.advance(bar, number)

        yield begin


# -- the file --------------------------------------------------------------------------------------


def registry_text(
    file: str,
    translation: AnyTranslation,
    home: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
    *,
    included: bool = False,
) -> str:
    """The registry file of a crontab. `home`: where its commands begin if nothing else is said.
    `included`: another file has the tables that are for all, [notify] among them."""
    import tomli_w

    of_cron = isinstance(translation, Translation)
    parts = [f"{SCHEMA_LINE}\n", _comment(_introduction(file, translation)), "\n"]
    if translation.untranslated:
        parts += [_comment(_left_out(translation.untranslated)), "\n"]
    parts.append("[defaults]\n")
    parts += [
        f"{line:28}  # {reason}\n" for line, reason in (_DEFAULTS if of_cron else krontab.DEFAULTS)
    ]
    jobs: list[Any] = list(translation.jobs)
    tables = [_table(job) for job in jobs]
    targets = _targets(translation) if of_cron and not included else {}
    for job, table in zip(jobs, tables, strict=True):
        if isinstance(job, Job) and job.mail in targets:
            table["notify"] = {"to": targets[job.mail]}
    shared = _taken_out(tables) if of_cron else {}
    if home is not None and "cwd" not in shared:
        parts.append(
            f"{tomli_w.dumps({'cwd': home}).rstrip():28}  # it starts the commands of a "
            "user in the home\n"
        )
    parts.append(_shared_text(shared))
    for mail, name in targets.items():
        parts.append("\n" + tomli_w.dumps({"notify": {name: _target(mail)}}))
    last = 0
    comments = translation.comments if isinstance(translation, Translation) else []
    for job, table in zip(jobs, tables, strict=True):
        parts += ["\n", _kept(comments, last, job.line), _task_text(table)]
        advance(job.line - last)
        last = job.line
    if behind := _kept(comments, last, sys.maxsize):
        parts += ["\n", behind]
    return "".join(parts)


def _kept(comments: list[tuple[int, str]], after: int, before: int) -> str:
    """The comments of the crontab between two of its lines."""
    first = bisect_left(comments, (after + 1, ""))
    last = bisect_left(comments, (before, ""))
    return _comment(visible(text.lstrip("#").strip(" ")) for _, text in comments[first:last])


_SHARED: Final = ("cwd", "timezone", "notify")


def _taken_out(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """What all tasks have in common, as [defaults]; it no longer stands in the tasks."""
    if not tables:
        return {}
    first = tables[0]
    shared = {
        key: first[key]
        for key in _SHARED
        if key in first and all(table.get(key) == first[key] for table in tables)
    }
    env = {
        name: value
        for name, value in first["env"].items()
        if all(table["env"].get(name) == value for table in tables)
    }
    for table in tables:
        for key in shared:
            del table[key]
        rest = {name: value for name, value in table.pop("env").items() if name not in env}
        if rest:
            table["env"] = rest
    return shared | ({"env": env} if env else {})


def _targets(translation: AnyTranslation) -> dict[Mail, str]:
    """Each that mail goes to, with the name of its table."""
    names, found = Names(), dict[Mail, str]()
    for job in translation.jobs:
        if isinstance(job, Job) and job.mail is not None and job.mail not in found:
            found[job.mail] = names.unique(slug(job.mail.to[0].partition("@")[0]))
    return found


def _target(mail: Mail) -> dict[str, Any]:
    return {"mail": list(mail.to)} | ({"sender": mail.sender} if mail.sender else {})


def _inline(value: Any) -> str:
    """A value on one line."""
    import tomli_w

    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_inline(entry)}' for name, entry in value.items())} }}"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").removesuffix("\n")


def _shared_text(shared: dict[str, Any]) -> str:
    import tomli_w

    plain = "".join(f"{key} = {_inline(shared[key])}\n" for key in _SHARED if key in shared)
    env = f"\n[defaults.env]\n{tomli_w.dumps(shared['env'])}" if "env" in shared else ""
    return _escaped(plain + env)


def _task_text(table: dict[str, Any]) -> str:
    """A [[task]]. Short tables are written on their line."""
    import tomli_w

    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    short = {key: value for key, value in table.items() if key not in plain and key != "env"}
    parts = [
        tomli_w.dumps({"task": [plain]}),
        *(f"{key} = {_inline(value)}\n" for key, value in short.items()),
    ]
    if "env" in table:
        parts.append(f"\n[task.env]\n{tomli_w.dumps(table['env'])}")
    return _escaped("".join(parts))


def _escaped(toml: str) -> str:
    """What does not print stands in a text, where an escape means the same; a terminal would take
    some of it for orders."""
    return _UNPRINTED.sub(
        lambda found: found[0] if found[0].isprintable() else f"\\U{ord(found[0]):08x}", toml
    )


def _introduction(file: str, translation: AnyTranslation) -> Iterator[str]:
    return _of_cron(file, translation) if isinstance(translation, Translation) else _of_kron(file)


def _of_kron(file: str) -> Iterator[str]:
    yield f"Written by cronpoll import --kron from {abbreviate(visible(file))}."
    yield (
        "The [defaults] are what Kron does where a line says nothing. What remains different: "
        "of several periods that could"
    )
    yield (
        "be made up for within a deadline only the last one runs; and Kron hashes the path of "
        "the file together with the name,"
    )
    yield (
        "so that a task starts in the seconds Kron chose only if it is named like that: "
        "/etc/krond.d/jobs.kron:backup."
    )


def _of_cron(file: str, translation: Translation) -> Iterator[str]:
    kind = (
        "a system crontab, with a user column"
        if translation.system
        else "the crontab of a user, without user column"
    )
    yield f"Written by cronpoll import from {abbreviate(visible(file))}, read as {kind}."
    yield (
        "The [defaults] make cronpoll do as cron does. Each that you take out gives you what "
        "cronpoll does better."
    )
    yield (
        "What remains different: what a job prints is kept (cronpoll logs), and only failures are "
        "mailed, to those that MAILTO names;"
    )
    yield (
        "a job whose time the clock skips when it is put forward does not run that day "
        "(cronpoll validate names them)."
    )


def _left_out(untranslated: list[Remark]) -> Iterator[str]:
    yield "NOT translated, and not in this file:"
    for remark in untranslated:
        yield f"  line {remark.line}: {visible(remark.reason)}"
        yield f"      {abbreviate(visible(remark.text), _LINE_LENGTH)}"


def _comment(lines: Iterator[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _table(job: Job | krontab.Job) -> dict[str, Any]:
    """A job as a [[task]]. What is the default of the file is left out."""
    if isinstance(job, krontab.Job):
        return job.table
    optional: dict[str, Any] = {
        "user": job.user,
        "timezone": job.timezone,
        "cwd": job.cwd,
        "env": {"PATH": PATH} | job.env,
    }
    if job.repeated_hour != "first":
        optional["repeated_hour"] = job.repeated_hour
    if job.delay:
        optional["window"] = {"mode": "after", "duration": f"{job.delay}m"}
    if job.only is not None:
        optional["only"] = {job.only.name: list(job.only.values)}
    written = {
        "name": job.name,
        "description": job.description,
        **({"cron": job.cron} if job.cron else {"on_start": "boot"}),
        "command": list(job.command),
    }
    return written | {key: value for key, value in optional.items() if value is not None}
