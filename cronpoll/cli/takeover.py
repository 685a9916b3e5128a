"""`cronpoll takeover`: jobs of the host's crontabs become tasks of the running daemon, and back.

**Which minute is whose.** cron reads a changed crontab when it wakes for a minute, before it starts
that minute's jobs. Hence a change made within a minute holds from the next one on. The daemon does
the same for a task that was suspended: what was due before it is resumed is not made up for. So
both changes are made within one minute, some seconds after it began (`QUIET`), when both have
started what was due in it.

**Order.** The tasks come in suspended: nothing can start twice, and what the daemon would refuse is
refused before anything has changed for cron. Then the lines are marked as comments, and directly
after it the tasks are resumed. Should the power fail between these two, the jobs rest: the files
still say that they are suspended, `status` shows it, and the next --apply begins with giving those
lines back. The way back takes the tasks out first, because the daemon can refuse that, and then
gives the lines back.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Final, Literal, NamedTuple, NoReturn

import click

from cronpoll.cli.asking import refused
from cronpoll.cli.common import NO, UNREACHABLE, print_json, state_directory, with_json
from cronpoll.cli.importing import Remarked, is_account, registry_text, remarked
from cronpoll.cli.reload import RELOAD_SECONDS
from cronpoll.convert.crontab import Translation, translate
from cronpoll.convert.names import Names
from cronpoll.convert.takeover import disabled, in_force, restored, taken_over
from cronpoll.core.text import count, visible, well_formed
from cronpoll.core.view import View
from cronpoll.daemon import wire
from cronpoll.files import close_file, lock_file, read_file, replace_file, sync_directory
from cronpoll.runtime.clock import SystemClock

CONFIG: Final = "/etc/cronpoll/tasks.toml"
QUIET: Final = range(5, 40)
"""Seconds of a minute: everybody has started what is due in it, and there is time enough left."""
FOLDER: Final = "conf.d"
INCLUDE: Final = f'include = ["{FOLDER}/*.toml"]'
_SUSPENDED: Final = "[defaults]\nsuspend = true                # until takeover is done\n"
_OURS: Final = re.compile(r"cron-[\w.-]+\.toml")
_READ_BY_CRON: Final = re.compile(r"[A-Za-z0-9_-]+")
"""The names that cron looks at in cron.d: backups and leftovers of packages have a dot."""
_SPOOLS: Final = ("var/spool/cron/crontabs", "var/spool/cron/tabs", "var/spool/cron")


class Crontab(NamedTuple):
    """`owner`: whose it is; None: it has a user column."""

    path: str
    owner: str | None
    content: bytes


class Taken(NamedTuple):
    """A crontab with lines that can be taken over, and the registry file for them."""

    crontab: Crontab
    translation: Translation
    file: str

    @property
    def marked(self) -> bytes:
        return disabled(
            self.crontab.content, [job.line for job in self.translation.jobs], self.file
        )


@dataclass
class Place:
    """The registry, and the daemon that follows it."""

    config: str
    as_json: bool = False
    folder: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder = os.path.join(os.path.dirname(self.config), FOLDER)

    def say(self, text: str) -> None:
        """For people. Who asked for JSON gets a report at the end."""
        if not self.as_json:
            click.echo(text)

    def fail(self, text: str, code: int) -> NoReturn:
        refused(text, code, self.as_json)

    def ours(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.folder) if _OURS.fullmatch(name))
        except FileNotFoundError:
            return []

    def unfinished(self) -> list[str]:
        return [
            name
            for name in self.ours()
            if _SUSPENDED.encode() in read_file(os.path.join(self.folder, name))
        ]

    def write(self, name: str, text: str) -> None:
        """With the owner and the rights of the main file: who may read that may read this."""
        replace_file(os.path.join(self.folder, name), text.encode(), like=os.stat(self.config))

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            os.unlink(os.path.join(self.folder, name))
        sync_directory(self.folder)

    def put_aside(self, names: Collection[str]) -> None:
        """Take files out; somebody may have edited them. They are kept under a name that nobody
        includes."""
        for name in names:
            path = os.path.join(self.folder, name)
            os.replace(path, f"{path}.undone")
        sync_directory(self.folder)

    def take_back(self, names: Collection[str]) -> None:
        for name in names:
            path = os.path.join(self.folder, name)
            os.replace(f"{path}.undone", path)
        sync_directory(self.folder)

    def reload(self) -> wire.Reloaded:
        try:
            directory = state_directory(None, self.config)
            answer = wire.ask(directory, wire.Reload(), wire.Reloaded, RELOAD_SECONDS)
        except wire.UnreachableError as error:
            return wire.Reloaded(ok=True, accepted=False, reason=str(error))
        if isinstance(answer, wire.Refused):
            return wire.Reloaded(ok=True, accepted=False, reason=answer.error)
        return answer


class TakenLine(View, frozen=True):
    """The task that was made of a line."""

    line: int
    task: str


class TakenOver(View, frozen=True):
    """What is taken over of a crontab, and what stays with cron. `file`: where the tasks are."""

    crontab: str
    file: str | None
    tasks: tuple[TakenLine, ...]
    untranslated: tuple[Remarked, ...]
    notes: tuple[Remarked, ...]


class GivenBack(View, frozen=True):
    """How many lines of each crontab are in force again, and the registry files that are out of
    it."""

    crontabs: dict[str, int]
    files: tuple[str, ...]


@click.command(
    epilog="Example: cronpoll takeover --dry-run",
    short_help="Take over the jobs of the host's crontabs.",
)
@click.option("--dry-run", "what", flag_value="dry-run", help="Say what would be done. [default]")
@click.option("--apply", "what", flag_value="apply", help="Take the jobs over.")
@click.option("--undo", "what", flag_value="undo", help="Give the lines back to cron.")
@click.option(
    "--config",
    "-c",
    metavar="FILE",
    default=CONFIG,
    show_default=True,
    help=f"The registry file of the daemon. The tasks go to {FOLDER}/ beside it.",
)
@click.option("--cronie", is_flag=True, help="Read crontabs as cronie does; see import.")
@with_json(tuple[TakenOver, ...] | GivenBack, "Print a report as JSON.")
@click.option(
    "--root", metavar="DIR", default="/", help="Where etc and var of the host are. [default: /]"
)
def takeover(
    what: Literal["dry-run", "apply", "undo"] | None,
    config: str,
    cronie: bool,
    as_json: bool,
    root: str,
) -> None:
    """Take over the jobs of the host's crontabs, and give them back.

    Reads /etc/crontab, /etc/cron.d and the crontabs of users, writes registry files beside the
    daemon's own, and turns the lines that it took over, and no others, into comments. Every minute
    is run by cron or by the daemon, never by both. --undo takes the tasks out and the lines back
    into force, also if the crontabs were edited meanwhile. Exits with 1 if lines were not
    translated and stay with cron, or the daemon refused; with 3 if there is no daemon.
    """
    place = Place(os.path.abspath(config), as_json)
    if not os.path.exists(config):
        place.fail(f"{config}: there is no such registry file; give --config FILE", UNREACHABLE)
    crontabs = list(_crontabs(root, place))
    if what is None or what == "dry-run":
        taken = _taken(crontabs, place, cronie)
        sys.exit(_say(taken, "would be taken over", crontabs, place))
    with _alone(place):
        sys.exit(
            _undo(place, crontabs) if what == "undo" else _apply(place, crontabs, root, cronie)
        )


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    os.makedirs(place.folder, 0o755, exist_ok=True)
    handle = lock_file(os.path.join(place.folder, ".takeover"))
    if handle is None:
        place.fail("another takeover is at work", NO)
    try:
        yield
    finally:
        close_file(handle)


# -- what the host has -----------------------------------------------------------------------------


def _crontabs(root: str, place: Place) -> Iterator[Crontab]:
    """The crontabs that cron reads. What it passes over is not ours to run, either."""
    if (found := _crontab(os.path.join(root, "etc/crontab"), None, place)) is not None:
        yield found
    for path, name in _files(os.path.join(root, "etc/cron.d")):
        if _READ_BY_CRON.fullmatch(name) and (found := _crontab(path, None, place)) is not None:
            yield found
    for spool in _SPOOLS:
        for path, name in _files(os.path.join(root, spool)):
            if is_account(name) and (found := _crontab(path, name, place)) is not None:
                yield found


def _files(folder: str) -> list[tuple[str, str]]:
    try:
        return [(os.path.join(folder, name), name) for name in sorted(os.listdir(folder))]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _crontab(path: str, owner: str | None, place: Place) -> Crontab | None:
    """None: it is not there, or cron would not read it: a link, a directory, or one that others
    could have written."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        if owner is None and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            click.echo(f"{visible(path)}: left out: others than its owner can write it", err=True)
            return None
        return Crontab(path, owner, read_file(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        place.fail(f"{path}: cannot be read: {error.strerror}", UNREACHABLE)


def _taken(crontabs: list[Crontab], place: Place, cronie: bool) -> list[Taken]:
    """What is there to be taken over, apart from what was already."""
    from cronpoll.config.bundle import gather
    from cronpoll.config.reading import read_all

    parts = gather(place.config, check_ownership=False).parts
    texts = [(part.file, part.content.decode(errors="replace")) for part in parts]
    used = {task.name for task in read_all(texts).tasks}
    names, files = Names(used), Names(name.removesuffix(".toml") for name in place.ours())
    found = []
    for crontab in crontabs:
        translation = translate(
            in_force(crontab.content),
            system=crontab.owner is None,
            owner=crontab.owner,
            cronie=cronie,
            names=names,
        )
        file = re.sub(r"[^\w.-]", "-", os.path.basename(crontab.path))
        kind = "user-" if crontab.owner is not None else ""
        found.append(Taken(crontab, translation, f"{files.unique(f'cron-{kind}{file}')}.toml"))
    return found


def _say(taken: list[Taken], done: str, crontabs: list[Crontab], place: Place) -> int:
    """What was made of each line; the exit status."""
    stay = sum(len(each.translation.untranslated) for each in taken)
    if place.as_json:
        print_json([_reported(each) for each in taken])
        return NO if stay else 0
    for crontab, translation, file in taken:
        path = visible(crontab.path)
        for job in translation.jobs:
            click.echo(f"{path}:{job.line}: {done}: {visible(job.name)} ({FOLDER}/{file})")
        for remark in translation.untranslated:
            click.echo(f"{path}:{remark.line}: stays with cron: {visible(remark.reason)}")
        for remark in translation.notes:
            click.echo(f"{path}:{remark.line}: note: {visible(remark.reason)}")
    number = sum(len(each.translation.jobs) for each in taken)
    more = f", {stay} {'stays' if stay == 1 else 'stay'} with cron" if stay else ""
    before = sum(bool(taken_over(crontab.content)) for crontab in crontabs)
    some = f"; in {before} of them lines were taken over before" if before else ""
    click.echo(f"{count(len(crontabs), 'crontab')}: {count(number, 'line')} {done}{more}{some}")
    return NO if stay else 0


def _reported(taken: Taken) -> TakenOver:
    translation = taken.translation
    return TakenOver(
        well_formed(taken.crontab.path),
        f"{FOLDER}/{taken.file}" if translation.jobs else None,
        tuple(TakenLine(job.line, job.name) for job in translation.jobs),
        remarked(translation.untranslated),
        remarked(translation.notes),
    )


# -- there -----------------------------------------------------------------------------------------


def _apply(place: Place, crontabs: list[Crontab], root: str, cronie: bool) -> int:
    if unfinished := place.unfinished():  # of one that died over it: begin anew
        _give_back(crontabs, unfinished)
        place.remove(unfinished)
        crontabs = list(_crontabs(root, place))
    every = _taken(crontabs, place, cronie)
    taken = [each for each in every if each.translation.jobs]
    if not taken:
        return _say(every, "taken over", crontabs, place)
    main = _including(place)
    texts = {
        each.file: registry_text(each.crontab.path, each.translation, included=True)
        for each in taken
    }
    for name, text in texts.items():
        place.write(name, text.replace("[defaults]\n", _SUSPENDED, 1))
    answer = place.reload()
    if not answer.accepted:
        _refused(place, texts.keys(), main, answer)
    with quiet() as minute:
        for crontab, *_ in taken:
            if read_file(crontab.path) != crontab.content:
                place.remove(texts.keys())
                place.reload()
                place.fail(f"nothing has changed: {crontab.path} was edited meanwhile", NO)
        for each in taken:
            _replace(each.crontab.path, each.marked)
        for name, text in texts.items():
            place.write(name, text)
        answer = place.reload()
        if not answer.accepted:
            _give_back([each.crontab for each in taken], texts.keys())
            _refused(place, texts.keys(), main, answer)
        late = minute != _minute()
    status = _say(every, "taken over", crontabs, place)
    if late:
        click.echo(
            "the daemon took until the next minute to resume the tasks: what was due at its "
            "beginning has not run, see cronpoll history",
            err=True,
        )
        return NO
    return status


def _including(place: Place) -> bytes:
    """Let the main file include ours, if it includes nothing yet. What it was before."""
    from cronpoll.config.bundle import patterns_of

    config = os.path.realpath(place.config)
    before = read_file(config)
    patterns = patterns_of(before)
    if not patterns:
        lines = before.splitlines(keepends=True)
        first = next((at for at, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
        lines.insert(first, f"{INCLUDE}\n".encode())
        replace_file(config, b"".join(lines), like=os.stat(config))
    elif not any(fnmatch(f"{FOLDER}/cron-x.toml", os.path.normpath(each)) for each in patterns):
        place.fail(f"{place.config}: its include does not name {FOLDER}/*.toml; add it", NO)
    return before


def _refused(place: Place, names: Collection[str], main: bytes, answer: wire.Reloaded) -> NoReturn:
    """The daemon does not take the tasks: everything becomes as it was."""
    place.remove(names)
    config = os.path.realpath(place.config)
    if read_file(config) != main:
        replace_file(config, main, like=os.stat(config))
    if not answer.problems:  # it is not there, or has another reason than what is written
        place.fail(f"nothing has changed: {answer.reason}", UNREACHABLE)
    place.reload()
    place.fail(
        f"nothing has changed: the daemon refuses these tasks: {'; '.join(answer.problems)}. To "
        "run them as their users it has to be root: see privileged.conf.example of the package",
        NO,
    )


def _replace(path: str, content: bytes) -> None:
    """With the owner and the rights that it had; cron notices by the times of file and folder."""
    replace_file(path, content, like=os.lstat(path))


def _minute() -> int:
    return int(SystemClock().wall().timestamp()) // 60


@contextmanager
def quiet() -> Iterator[int]:
    """A minute in which everybody has started what was due. Nobody interrupts us in it."""
    while (second := SystemClock().wall().second) not in QUIET:
        click.echo("waiting for cron and daemon to have started this minute's jobs", err=True)
        threading.Event().wait((QUIET.start - second) % 60)
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield _minute()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- and back --------------------------------------------------------------------------------------


def _give_back(crontabs: list[Crontab], files: Collection[str]) -> dict[str, int]:
    """Take the marks of these files off, in whatever the crontabs are by now. How many lines of
    which."""
    found = {}
    for crontab in crontabs:
        content = read_file(crontab.path)
        again = restored(content, files)
        if again != content:
            _replace(crontab.path, again)
            lines = zip(content.split(b"\n"), again.split(b"\n"), strict=True)
            found[crontab.path] = sum(old != new for old, new in lines)
    return found


def _undo(place: Place, crontabs: list[Crontab]) -> int:
    files = place.ours()
    marked = set().union(*(taken_over(crontab.content) for crontab in crontabs))
    if not files and not marked:
        place.say("nothing was taken over")
    with quiet() if files or marked else nullcontext():
        if files:
            place.put_aside(files)
            answer = place.reload()
            if not answer.accepted and answer.problems:
                place.take_back(files)
                place.reload()
                place.fail(
                    "nothing has changed: the daemon refuses its registry without these tasks: "
                    f"{'; '.join(answer.problems)}",
                    NO,
                )
            if not answer.accepted:  # without a daemon nobody else runs them
                place.say(f"note: {visible(answer.reason)}")
        given = _give_back(crontabs, {*files, *marked})
    aside = [f"{os.path.join(place.folder, name)}.undone" for name in files]
    if place.as_json:
        print_json(GivenBack(given, tuple(aside)))
    for path, number in given.items():
        place.say(f"{visible(path)}: lines in force again: {number}")
    for path in aside:
        place.say(f"{visible(path)}: kept, no longer included")
    return 0
