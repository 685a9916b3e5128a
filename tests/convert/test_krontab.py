"""`cronpoll import --kron`: lines of Kron become tasks that make Kron's decisions; nothing is lost
silently."""

from __future__ import annotations

import itertools
import json
import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from cronpoll.cli.importing import import_, registry_text
from cronpoll.config.check import Rules, check_content
from cronpoll.config.registry import Registry
from cronpoll.convert.commands import ARGUMENT_LIMIT
from cronpoll.convert.krontab import Translation, translate
from cronpoll.convert.lines import is_idle, lines_of
from cronpoll.convert.parameters import length
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window, choose
from cronpoll.core.values import duration
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from tests.tools.support import searching

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAILY = "0 0 * * *"
END = "name=a command=/bin/true"
DEFAULTS = {
    "timezone": "UTC",
    "concurrency": "allow",
    "deadline": "0s",
    "interrupted": "abandon",
    "retry": {"max_attempts": 1},
}


def translated(text: str | bytes) -> Translation:
    return translate(text.encode() if isinstance(text, str) else text)


def registry_of(translation: Translation) -> Registry:
    """The written file as `cronpoll validate` reads it."""
    return check_content(
        registry_text("k", translation).encode(), "t.toml", NOW, UTC, Rules(imports=False)
    )


def written(line: str) -> dict[str, Any]:
    """The [[task]] of a line as it stands in the file, which is accepted."""
    translation = translated(f"{line}\n")
    assert translation.untranslated == []
    data = tomllib.loads(registry_text("k", translation))
    assert data["defaults"] == DEFAULTS
    assert [
        problem for problem in registry_of(translation).problems if problem.severity == "error"
    ] == []
    (table,) = data["task"]
    assert table == translation.jobs[0].table
    return dict(table)


def reasons(text: str | bytes) -> dict[int, str]:
    translation = translated(text)
    assert len({remark.line for remark in translation.untranslated}) == len(
        translation.untranslated
    )
    return {remark.line: remark.reason for remark in translation.untranslated}


def notes(text: str | bytes) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for remark in translated(text).notes:
        found.setdefault(remark.line, []).append(remark.reason)
    return found


# -- lines and what becomes of them ----------------------------------------------------------------

AFTER_0: dict[str, Any] = {"mode": "after", "duration": "0s"}
DIRECTIVES: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("@tz(Europe/Paris)", {"timezone": "Europe/Paris"}),
    ("@tz( UTC )", {"timezone": "UTC"}),
    ('@tz("Asia/Tokyo")', {"timezone": "Asia/Tokyo"}),
    # Windows.
    ("@win(after,3h)", {"window": {"mode": "after", "duration": "3h"}}),
    ("@win(around,45m)", {"window": {"mode": "around", "duration": "45m"}}),
    ("@win(center,45m)", {"window": {"mode": "around", "duration": "45m"}}),
    ("@win(before,1h30m)", {"window": {"mode": "before", "duration": "1h30m"}}),
    ("@win(after,0s)", {"window": AFTER_0}),
    ("@win(after,0)", {"window": AFTER_0}),
    ("@win(after;90m)", {"window": {"mode": "after", "duration": "90m"}}),
    ("@win( after , 90m )", {"window": {"mode": "after", "duration": "90m"}}),
    ("@win(after 90m)", {"window": {"mode": "after", "duration": "90m"}}),
    ("@win (after,90m)", {"window": {"mode": "after", "duration": "90m"}}),
    ("@win('after',\"90m\")", {"window": {"mode": "after", "duration": "90m"}}),
    ("@win(after,1.5h)", {"window": {"mode": "after", "duration": "1h30m"}}),
    ("@win(around,1500ms)", {"window": {"mode": "around", "duration": "1.5s"}}),
    ("@win(after,7d)", {"window": {"mode": "after", "duration": "7d"}}),
    # Distributions.
    (
        "@win(after,3h) @dist(uniform)",
        {"window": {"mode": "after", "duration": "3h"}, "distribution": "uniform"},
    ),
    ("@dist(uniform)", {"window": AFTER_0, "distribution": "uniform"}),
    ("@dist(skewEarly)", {"window": AFTER_0, "distribution": "skewEarly"}),
    (
        "@dist(skewEarly,shape=3)",
        {"window": AFTER_0, "distribution": {"name": "skewEarly", "shape": 3}},
    ),
    (
        "@dist(skewLate,shape=2.5)",
        {"window": AFTER_0, "distribution": {"name": "skewLate", "shape": 2.5}},
    ),
    (
        "@dist(skewLate; shape = 2.0)",
        {"window": AFTER_0, "distribution": {"name": "skewLate", "shape": 2}},
    ),
    (
        "@dist(skewLate,shape='1e1')",
        {"window": AFTER_0, "distribution": {"name": "skewLate", "shape": 10}},
    ),
    (
        "@dist(normal,mu=start,sigma=15m)",
        {"window": AFTER_0, "distribution": {"name": "normal", "mu": "start", "sigma": "15m"}},
    ),
    (
        "@dist(exponential,dir=late,lambda=.8)",
        {"window": AFTER_0, "distribution": {"name": "exponential", "dir": "late", "lambda": 0.8}},
    ),
    # Seeds.
    ("@seed(daily)", {"window": AFTER_0, "seed": "daily"}),
    (
        "@seed(weekly,salt=prod)",
        {"window": AFTER_0, "seed": {"strategy": "weekly", "salt": "prod"}},
    ),
    (
        '@seed(stable,salt="a, \\"b\\" \\\\ (c)")',
        {"window": AFTER_0, "seed": {"strategy": "stable", "salt": 'a, "b" \\ (c)'}},
    ),
    ('@seed(stable,salt="")', {"window": AFTER_0, "seed": {"strategy": "stable", "salt": ""}}),
    ("@seed(stable,salt=)", {"window": AFTER_0, "seed": {"strategy": "stable", "salt": ""}}),
    ("@seed(stable,salt=ä=1)", {"window": AFTER_0, "seed": {"strategy": "stable", "salt": "ä=1"}}),
    # Policies.
    ("@policy(concurrency=forbid)", {"concurrency": "forbid"}),
    ("@policy(concurrency=replace;deadline=10m)", {"concurrency": "replace", "deadline": "10m"}),
    ("@policy(suspend=true, deadline=0s)", {"suspend": True, "deadline": "0s"}),
    ("@policy(suspend=false concurrency=allow)", {"suspend": False, "concurrency": "allow"}),
    # Constraints.
    ("@only(hours=9-17;dow=1-5)", {"only": {"hours": ["9-17"], "dow": ["1-5"]}}),
    ("@only(hours=9-17,dow=MON-fri)", {"only": {"hours": ["9-17"], "dow": ["1-5"]}}),
    (
        "@only(hours=1,3-5,9;months=JAN,jul-SEP)",
        {"only": {"hours": [1, "3-5", 9], "months": [1, "7-9"]}},
    ),
    ("@only( dow = 7 ; dom = 1,15 )", {"only": {"dow": [0], "dom": [1, 15]}}),
    ("@only(dow=5-7)", {"only": {"dow": [0, 5, 6]}}),
    ("@only(hours=*/6)", {"only": {"hours": [0, 6, 12, 18]}}),
    ('@only(dow="MON,WED")', {"only": {"dow": [1, 3]}}),
    ("@avoid(between=8:00-20:00)", {"avoid": {"between": ["08:00-20:00"]}}),
    (
        "@avoid(between=22:00-06:00;between=12:00-13:00)",
        {"avoid": {"between": ["22:00-06:00", "12:00-13:00"]}},
    ),
    ("@avoid(date=2026-12-25)", {"avoid": {"dates": ["2026-12-25"]}}),
    (
        "@avoid(dates=2026-12-24..2026-12-31;date=2027-01-06)",
        {"avoid": {"dates": ["2026-12-24..2026-12-31", "2027-01-06"]}},
    ),
    ("@only(hours=1) @avoid(dom=13)", {"only": {"hours": [1]}, "avoid": {"dom": [13]}}),
    # Together.
    ("@win(after,3h)@tz(UTC)", {"window": {"mode": "after", "duration": "3h"}, "timezone": "UTC"}),
]


@pytest.mark.parametrize(
    ("text", "expected"), DIRECTIVES, ids=[row[0] or "none" for row in DIRECTIVES]
)
def test_directives_become_keys(text: str, expected: dict[str, Any]) -> None:
    table = written(f"{DAILY} {text} {END}")
    assert table.pop("description") == f"{DAILY} {text}".rstrip().replace(")@", ") @")
    assert table == {"name": "a", "cron": DAILY, "command": ["/bin/true"], **expected}


SCHEDULES = [
    ("*/15 9-17/4 * JAN-mar 1-5", "0,15,30,45 9,13,17 * 1-3 1-5"),
    ("0 0 * * 7", "0 0 * * 0"),
    ("0 0 1-31 * mon", "0 0 * * *"),
    ("0 0 1 * mon", "0 0 1 * 1"),
]


@pytest.mark.parametrize(("original", "cron"), SCHEDULES)
def test_schedules_are_written_out(original: str, cron: str) -> None:
    assert written(f"{original} {END}")["cron"] == cron
    assert notes(f"{original} {END}\n") == {}
    start, expression = NOW, parse(cron)
    for theirs in itertools.islice(CronSim(original, NOW), 100):
        start = expression.next_after(start)
        assert start == theirs


@pytest.mark.parametrize(
    ("original", "cron"),
    [
        ("0 0 */2 * mon", f"0 0 {','.join(map(str, range(1, 32, 2)))} * 1"),
        ("0 0 1 * */2", "0 0 1 * 0,2,4,6"),
        ("0 0 */1 * mon", "0 0 * * *"),
    ],
)
def test_for_kron_a_step_is_a_restriction_and_either_suffices(original: str, cron: str) -> None:
    table = written(f"{original} {END}")
    assert table["cron"] == cron
    assert "only" not in table
    ((note,),) = notes(f"{original} {END}\n").values()
    assert "Vixie cron would ask for both" in note


COMMANDS: list[tuple[str, dict[str, Any]]] = [
    ("command=/usr/bin/backup", {"command": ["/usr/bin/backup"]}),
    ('command="/usr/bin/backup --full  x"', {"command": ["/usr/bin/backup", "--full", "x"]}),
    ("command='/usr/bin/backup --full'", {"command": ["/usr/bin/backup", "--full"]}),
    ('command="/usr/bin/backup --full" shell=false', {"command": ["/usr/bin/backup", "--full"]}),
    ('command="a | b > \\"c d\\"" shell=true', {"command": ["/bin/sh", "-c", 'a | b > "c d"']}),
    ('shell=true command="50%"', {"command": ["/bin/sh", "-c", "50%"]}),
    ("command=/bin/a --b=c d", {"command": ["/bin/a", "--b=c", "d"]}),
    ('command=/bin/a   \'b c\' "d \\" e" f=g', {"command": ["/bin/a", "b c", 'd " e', "f=g"]}),
    ("shell=true command=cat <x | sort -u", {"command": ["/bin/sh", "-c", "cat <x | sort -u"]}),
    ("command=/bin/a user=bob", {"command": ["/bin/a"], "user": "bob"}),
    ("command=/bin/a cwd=/srv", {"command": ["/bin/a"], "cwd": "/srv"}),
    ("command=/bin/a timeout=90m", {"command": ["/bin/a"], "timeout": "90m"}),
    ("command=/bin/a timeout=0s", {"command": ["/bin/a"]}),
    ('command=/bin/a env=A=b env="C=d e"', {"command": ["/bin/a"], "env": {"A": "b", "C": "d e"}}),
    (
        "command=/bin/a env=A= stdout=inherit stderr=inherit",
        {"command": ["/bin/a"], "env": {"A": ""}},
    ),
    (
        'command=/bin/a description="Nightly \\"full\\" backup"',
        {"command": ["/bin/a"], "description": 'Nightly "full" backup'},
    ),
    ("command=/bin/a @policy(suspend=true)", {"command": ["/bin/a"], "suspend": True}),
]


@pytest.mark.parametrize(("text", "expected"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_fields_become_keys(text: str, expected: dict[str, Any]) -> None:
    for line in (f"{DAILY} name=a {text}", f"{DAILY}\tname=a  {text}\t"):
        table = written(line)
        assert table == {
            "name": "a",
            "description": table["description"],
            "cron": DAILY,
            **expected,
        }


def test_fields_may_stand_in_any_order_and_directives_behind_them() -> None:
    line = f'{DAILY} command="/bin/a b" @tz(UTC) name=x @policy(concurrency=forbid) timeout=1m'
    assert written(line) == {
        "name": "x",
        "description": f"{DAILY} @tz(UTC) @policy(concurrency=forbid)",
        "cron": DAILY,
        "timezone": "UTC",
        "command": ["/bin/a", "b"],
        "timeout": "1m",
        "concurrency": "forbid",
    }


def test_what_a_line_leaves_out_is_what_kron_does() -> None:
    translation = translated(f"{DAILY} {END}\n")
    (task,) = registry_of(translation).tasks
    assert (task.timezone, task.concurrency, task.deadline) == ("UTC", "allow", timedelta(0))
    assert (task.interrupted, task.max_attempts, task.suspend) == ("abandon", 1, False)
    assert (task.repeated_hour, task.catch_up, task.spread) == ("both", "once", None)
    text = registry_text("k", translation)
    assert "SYNTAX.md says forbid" in text
    assert "/etc/krond.d/jobs.kron:backup" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0s"),
        ("0s", "0s"),
        ("90s", "90s"),
        ("1h30m", "1h30m"),
        ("30m1h", "1h30m"),
        ("1.5h", "1h30m"),
        (".5m", "30s"),
        ("1m1500ms", "1m1.5s"),
        ("2000us", "0.002s"),
        ("3000000ns", "0.003s"),
        ("1h1h", "2h"),
        ("60s0ms", "1m"),
    ],
)
def test_durations_are_exact(text: str, expected: str) -> None:
    assert length(text) == expected
    duration(expected)


# -- decisions -------------------------------------------------------------------------------------

RULES: list[tuple[str, str, Spread]] = [
    (
        "@win(after,3h) @dist(uniform) @seed(daily,salt=x)",
        "UTC",
        Spread(Window("after", 10_800_000), seed=Seed("daily", "x")),
    ),
    (
        "@win(around,45m) @dist(skewEarly)",
        "UTC",
        Spread(Window("around", 2_700_000), Distribution("skewEarly")),
    ),
    (
        "@tz(America/New_York) @win(before,2h) @dist(skewLate,shape=2.5) @seed(weekly)",
        "America/New_York",
        Spread(Window("before", 7_200_000), Distribution("skewLate", shape="2.5"), Seed("weekly")),
    ),
    (
        "@win(after,8h) @dist(normal,mu=end,sigma=20m)",
        "UTC",
        Spread(Window("after", 28_800_000), Distribution("normal", mu="end", sigma_ms=1_200_000)),
    ),
    (
        "@win(after,90m) @dist(exponential,lambda=3,dir=late) @seed(stable,salt=a)",
        "UTC",
        Spread(
            Window("after", 5_400_000),
            Distribution("exponential", rate="3", direction="late"),
            Seed(salt="a"),
        ),
    ),
    (
        "@tz(Europe/Paris) @win(around,6h) @only(dow=MON-FRI;between=08:00-20:00) "
        "@avoid(dates=2026-03-24..2026-03-31)",
        "Europe/Paris",
        Spread(
            Window("around", 21_600_000),
            only=Constraints(dow=(1, 2, 3, 4, 5), between=((480, 1200),)),
            avoid=Constraints(dates=((date(2026, 3, 24), date(2026, 3, 31)),)),
        ),
    ),
    (
        "@avoid(dom=13;hours=0-6)",
        "UTC",
        Spread(avoid=Constraints(dom=(13,), hours=(0, 1, 2, 3, 4, 5, 6))),
    ),
]


@pytest.mark.parametrize(("text", "zone", "spread"), RULES, ids=[row[0] for row in RULES])
def test_an_imported_task_makes_the_decisions_of_kron(text: str, zone: str, spread: Spread) -> None:
    (task,) = registry_of(translated(f"30 7,19 * * * {text} name=msgs/b command=/bin/true\n")).tasks
    assert task.spread == spread
    assert task.timezone == zone
    nominals = Schedule(
        parse(task.cron), zone_of(ZoneInfo(task.timezone)), task.repeated_hour == "first"
    )
    schedule = PeriodSchedule(task.name, task.spread, nominals)
    walls = [
        datetime(2026, 3, day, hour, 30, tzinfo=ZoneInfo(zone))
        for day in range(2, 32)
        for hour in (7, 19)
    ]
    decisions = list(itertools.islice(schedule.from_nominal(walls[0].astimezone(UTC)), len(walls)))
    assert decisions == [
        choose("msgs/b", spread, ZoneInfo(zone), wall.astimezone(UTC)) for wall in walls
    ]
    assert len({choice.chosen_at for choice in decisions if choice.chosen_at}) > 10


def test_the_decision_that_kron_publishes() -> None:
    """Computed step by step as Kron describes it, with nothing of ours."""
    from hashlib import sha256

    (task,) = registry_of(translated(f"{DAILY} @win(after,3h) @seed(daily,salt=x) {END}\n")).tasks
    digest = sha256(b"a\n2026-03-02\nx").digest()
    state = (int.from_bytes(digest[:8], "big") + 0x9E3779B97F4A7C15) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor % 2**64
    u = ((state ^ state >> 31) >> 11) / 2**53
    nominal = datetime(2026, 3, 2, tzinfo=UTC)
    assert task.spread is not None
    assert choose(task.name, task.spread, UTC, nominal).chosen_at == nominal + timedelta(
        seconds=int(u * 10_801)
    )


# -- what is reported ------------------------------------------------------------------------------

REPORTED: list[tuple[str, str]] = [
    # Directives.
    (f"{DAILY} @wim(after,3h) {END}", 'the directive "@wim" is unknown; known: @tz, @win'),
    (f"{DAILY} @WIN(after,3h) {END}", "unknown"),
    (f"{DAILY} @win {END}", '"@win" has no parentheses'),
    (f"{DAILY} @(x) {END}", "unknown"),
    (f"{DAILY} @win(after,3h {END}", "@win: its parenthesis is not closed"),
    (f"{DAILY} @win(after,(3h)) {END}", "@win: there is a parenthesis inside"),
    (f"{DAILY} @win(after,3h)) {END}", '")" is not understood'),
    (f"{DAILY} @win() {END}", "@win: expected a mode and a duration"),
    (f"{DAILY} @win(after) {END}", "@win: expected a mode and a duration"),
    (f"{DAILY} @win(after,3h,4h) {END}", "@win: expected a mode and a duration"),
    (f"{DAILY} @win(after,,3h) {END}", '@win: a parameter is missing before ","'),
    (f"{DAILY} @win(after,3h,) {END}", "@win: a parameter is missing before the closing"),
    (f"{DAILY} @win(,after,3h) {END}", "@win: a parameter is missing before"),
    (f"{DAILY} @win(=after,3h) {END}", '@win: a key is missing before "="'),
    (f"{DAILY} @win(mode=after,3h) {END}", "@win: expected a mode"),
    (f"{DAILY} @win(later,3h) {END}", "@win: mode: expected one of 'after', 'around', 'before'"),
    (f"{DAILY} @win(after,soon) {END}", '@win: "soon" is not a duration'),
    (f"{DAILY} @win(after,90) {END}", '@win: "90" is not a duration'),
    (f"{DAILY} @win(after,-3h) {END}", '@win: "-3h" is not a duration'),
    (f"{DAILY} @win(after,1500us) {END}", '@win: "1500us" is finer than a millisecond'),
    (f"{DAILY} @win(after,169h) {END}", "@win: duration: expected at most 7 days"),
    (f"{DAILY} @win(after,3h) @win(after,4h) {END}", "@win is given twice"),
    (f"{DAILY} @tz() {END}", "@tz: expected a zone"),
    (f"{DAILY} @tz(Mars/Olympus) {END}", '@tz: "Mars/Olympus" is not a time zone known'),
    (f"{DAILY} @tz(Local) {END}", '@tz: "Local" is not a time zone known'),
    (f"{DAILY} @tz(UTC,UTC) {END}", '@tz: "UTC" is not a parameter'),
    (f"{DAILY} @dist() {END}", "@dist: expected a distribution"),
    (f"{DAILY} @dist(gauss) {END}", "@dist: expected one of 'uniform'"),
    (f"{DAILY} @dist(shape=2) {END}", "@dist: expected a distribution"),
    (
        f"{DAILY} @dist(uniform,shape=2) {END}",
        '@dist: the parameter "shape" is unknown; it takes none',
    ),
    (
        f"{DAILY} @dist(skewEarly,sigma=2m) {END}",
        '@dist: the parameter "sigma" is unknown; known: shape',
    ),
    (f"{DAILY} @dist(skewEarly,2) {END}", '@dist: "2" is not a parameter like key=value'),
    (f"{DAILY} @dist(skewEarly,shape=x) {END}", '@dist: "x" is not a number'),
    (f"{DAILY} @dist(skewEarly,shape=0) {END}", "@dist: shape: expected a number above 0"),
    (f"{DAILY} @dist(skewEarly,shape=-1) {END}", '@dist: "-1" is not a number'),
    (f"{DAILY} @dist(skewEarly,shape=inf) {END}", '@dist: "inf" is not a number'),
    (f"{DAILY} @dist(skewEarly,shape=1e999) {END}", "@dist: shape: expected a number above 0"),
    (
        f"{DAILY} @dist(skewEarly,shape=2,shape=3) {END}",
        '@dist: the parameter "shape" is given twice',
    ),
    (f"{DAILY} @dist(normal,mu=middle) {END}", "@dist: mu: expected one of"),
    (f"{DAILY} @dist(normal,sigma=5) {END}", '@dist: "5" is not a duration'),
    (f"{DAILY} @dist(exponential,dir=up) {END}", "@dist: dir: expected one of"),
    (f"{DAILY} @seed() {END}", "@seed: expected a strategy"),
    (f"{DAILY} @seed(salt=x) {END}", "@seed: expected a strategy"),
    (f"{DAILY} @seed(hourly) {END}", "@seed: expected one of"),
    (
        f"{DAILY} @seed(daily,pepper=x) {END}",
        '@seed: the parameter "pepper" is unknown; known: salt',
    ),
    (f"{DAILY} @seed(daily,salt='x') {END}", "@seed: the salt is in single quotes"),
    (f'{DAILY} @seed(daily,salt=" x") {END}', "@seed: the salt has blanks at its ends"),
    (f'{DAILY} @seed(daily,salt="x) {END}', "@seed: a double quote is not closed"),
    (f"{DAILY} @policy() {END}", "@policy: expected something like"),
    (f"{DAILY} @policy(forbid) {END}", '@policy: "forbid" is not a parameter'),
    (
        f"{DAILY} @policy(concurrency=queue) {END}",
        '@policy: concurrency: "queue" is none of allow, forbid, replace',
    ),
    (f"{DAILY} @policy(deadline=soon) {END}", '@policy: "soon" is not a duration'),
    (f"{DAILY} @policy(suspend=yes) {END}", '@policy: suspend: "yes" is none of true, false'),
    (f"{DAILY} @policy(retries=3) {END}", '@policy: the parameter "retries" is unknown'),
    (f"{DAILY} @only() {END}", "@only: expected a clause"),
    (f"{DAILY} @only(9-17) {END}", '@only: "9-17" is not a clause'),
    (f"{DAILY} @only(hours=) {END}", "@only: the hour field has an empty element"),
    (f"{DAILY} @only(hours=24) {END}", '@only: the hour field has the value "24", outside 0-23'),
    (f"{DAILY} @only(hours=22-6) {END}", "@only: the hour field has the range"),
    (f"{DAILY} @only(hours=1;hours=2) {END}", '@only: the clause "hours" is given twice'),
    (f"{DAILY} @only(dow=someday) {END}", "@only: the weekday field has"),
    (
        f"{DAILY} @only(minutes=5) {END}",
        '@only: the clause "minutes" is unknown; known: hours, dow',
    ),
    (f"{DAILY} @avoid(between=9-17) {END}", '@avoid: between: "9-17": expected a time range'),
    (f"{DAILY} @avoid(between=08:00-24:00) {END}", "@avoid: between: expected times of day"),
    (f"{DAILY} @avoid(date=2026-02-30) {END}", '@avoid: dates: "2026-02-30": expected days'),
    (
        f"{DAILY} @avoid(dates=2026-12-31..2026-12-24) {END}",
        "@avoid: dates: expected a range that begins before it ends",
    ),
    (f"{DAILY} @only(hours=1) @only(dow=1) {END}", "@only is given twice"),
    # Schedules.
    (f"60 0 * * * {END}", 'the minute field has the value "60", outside 0-59'),
    (f"5/15 * * * * {END}", "a step after a single value"),
    (f"0 0 30 2 * {END}", "the day field"),
    (
        f"0 0 * * {END}",
        "expected five fields of a schedule before directives and name=value, found 4",
    ),
    (f"0 0 * * * * {END}", '"*" is not understood'),
    (f"0 0 * * @tz(UTC) {END}", "expected five fields"),
    (f"@daily {END}", "Kron has no macros"),
    ("PATH=/bin", "Kron has no lines that set variables"),
    ("nonsense", "expected five fields"),
    ("* * * * *", "there is no command="),
    # Fields.
    (f"{DAILY} name=a", "there is no command="),
    (f"{DAILY} @win(after,3h) name=a command=", "command: it is empty"),
    (f'{DAILY} name=a command=" "', "command: it is empty"),
    (f'{DAILY} name=a shell=true command=" "', "command: it is empty"),
    (f"{DAILY} name= command=/bin/a", "name: expected a text of 1 to 1000 characters"),
    (f"{DAILY} name=a name=b command=/bin/a", "name is given twice"),
    (f"{DAILY} name=a command=/bin/a command=/bin/b", "command is given twice"),
    (f"{DAILY} name=a command=/bin/a colour=red user=bob", "it is not clear whether"),
    (
        f"{DAILY} name=a colour=red command=/bin/a",
        'the field "colour" is unknown; known: name, command',
    ),
    (f"{DAILY} name = a command=/bin/a", '"name" is not understood'),
    (
        f"{DAILY} name=a command=/bin/a b @tz(UTC)",
        'it is not clear whether "@tz(UTC)" belongs to it',
    ),
    (f'{DAILY} name=a command="/bin/a b', "command: a double quote is not closed"),
    (f"{DAILY} name=a command='/bin/a b", "command: a single quote is not closed"),
    (f"{DAILY} name=a command='/bin/a'b", "command: something follows a single quote"),
    (f'{DAILY} name=a command="/bin/a \\"b c\\""', "command: it contains quotes"),
    (f'{DAILY} name=a command=/bin/a "b c', "command: a double quote is not closed"),
    (f"{DAILY} name=a command={'x' * (ARGUMENT_LIMIT + 1)}", "no program can be started with"),
    (f"{DAILY} name=a group=staff command=/bin/a", "group: there is no group"),
    (f"{DAILY} name=a umask=0027 command=/bin/a", "umask: there is no umask"),
    (
        f"{DAILY} name=a stdout=syslog command=/bin/a",
        'stdout: "syslog": what a task prints goes to the log',
    ),
    (f"{DAILY} name=a stderr=file:/x command=/bin/a", "stderr: "),
    (f"{DAILY} name=a shell=yes command=/bin/a", 'shell: "yes" is neither true nor false'),
    (f"{DAILY} name=a cwd=srv command=/bin/a", 'cwd: "srv" is not an absolute path'),
    (f"{DAILY} name=a user= command=/bin/a", "user: it is empty"),
    (f"{DAILY} name=a timeout=5 command=/bin/a", 'timeout: "5" is not a duration'),
    (f"{DAILY} name=a env=A command=/bin/a", 'env: "A": expected NAME=value'),
    (f"{DAILY} name=a env==b command=/bin/a", "env: "),
    (f"{DAILY} name=a env=A=b env=A=c command=/bin/a", 'env: "A" is given twice'),
    (f"{DAILY} name={'a' * 1_001} command=/bin/a", "name: expected"),
    (f"{DAILY} name=a description={'a' * 10_001} command=/bin/a", "description: it is longer"),
    (f"{DAILY} name=a command=/bin/a\0", "NUL"),
]


@pytest.mark.parametrize(("line", "reason"), REPORTED, ids=[row[0][:70] for row in REPORTED])
def test_what_is_not_understood_is_reported_with_its_line(line: str, reason: str) -> None:
    translation = translated(f"# a comment\n\n{line}\n{DAILY} name=other command=/bin/true\n")
    (remark,) = translation.untranslated
    assert remark.line == 3
    assert remark.text == line
    assert reason in remark.reason
    assert [job.line for job in translation.jobs] == [4]
    assert [note for note in translation.notes if note.line == 3] == []


def test_all_that_is_wrong_with_a_line_is_said_at_once() -> None:
    (reason,) = reasons(
        f"99 0 * * * @wim(x) @dist(gauss) @tz(X) name=a stdout=syslog {END}\n"
    ).values()
    for part in ("minute field", "@wim", "@dist:", "@tz:", "stdout:", "name is given twice"):
        assert part in reason
    assert "there is no command" not in reasons(f"{DAILY} @win(after,3h name=a command=b\n")[1]


def test_a_name_that_is_used_twice_is_reported_where_it_comes_again() -> None:
    text = (
        f"{DAILY} name=a command=/bin/a\n{DAILY} name=b command=/bin/b\n{DAILY} name=a "
        "command=/bin/c\n"
    )
    assert reasons(text) == {3: 'the name "a" is already used in line 1'}
    broken = f"{DAILY} @wim(x) name=a command=/bin/a\n{DAILY} name=a command=/bin/b\n"
    assert "already used in line 1" in reasons(broken)[2]


def test_a_line_without_name_gets_one_that_no_other_has() -> None:
    text = (
        f"{DAILY} command=/usr/bin/backup\n{DAILY} command=/usr/bin/backup\n{DAILY} "
        "name=backup command=/bin/a\n"
        f'{DAILY} shell=true command="cd /srv && ./clean.sh"\n'
    )
    translation = translated(text)
    assert [job.table["name"] for job in translation.jobs] == [
        "backup-2",
        "backup-3",
        "backup",
        "clean",
    ]
    assert {line: "has no name" in found[0] for line, found in notes(text).items()} == {
        1: True,
        2: True,
        4: True,
    }
    assert registry_of(translation).errors == []


def test_what_has_no_effect_or_is_taken_liberally_is_noted() -> None:
    rows = {
        f"{DAILY} @dist(skewLate) @seed(daily) {END}": "without @win there is nothing that @dist and @seed could spread",
        f"{DAILY} @win(after,1h) @dist(normal) {END}": "@dist(normal) is only sketched by Kron",
        f"{DAILY} @win(after,1h) @dist(exponential,lambda=2) {END}": "@dist(exponential) is only sketched",
        f"{DAILY} name=a command=/bin/a b": "taken up to the end of the line",
    }
    for line, part in rows.items():
        ((note,),) = notes(f"{line}\n").values()
        assert part in note
    assert notes(f"{DAILY} @win(after,1h) @dist(skewLate) @seed(daily) {END}\n") == {}


def test_the_encoding_of_a_file() -> None:
    text = f"\ufeff{DAILY} {END}\r\n# c\r\n\r\n{DAILY} name=b command=/bin/b\r\n"
    translation = translated(text)
    assert [job.table["command"] for job in translation.jobs] == [["/bin/true"], ["/bin/b"]]
    assert [note.line for note in translation.notes] == [1, 1]
    assert "UTF-8" in reasons(f"{DAILY} name=a command=/bin/".encode() + b"\xff\n")[1]


# -- anything --------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.sampled_from([*(row[0] for row in DIRECTIVES), *(row[0] for row in COMMANDS)]),
    st.sampled_from([row[0].removeprefix(DAILY).removesuffix(END)[:200] for row in REPORTED]),
    st.text(st.sampled_from("@()=,;'\"\\ \t-:.*/05ab#%\r\x0b\x85\u2028é"), max_size=12),
    st.builds("name={}".format, st.text(max_size=4)),
    st.builds(
        "@{}({})".format,
        st.sampled_from(["win", "dist", "seed", "policy", "only", "tz", "x"]),
        st.text(max_size=8),
    ),
    st.text(max_size=8),
)
LINES = st.one_of(
    st.text(max_size=20),
    st.builds(
        " ".join,
        st.builds(
            lambda first, rest: [first, *rest],
            st.sampled_from([DAILY, "*/5 1-3 */2 * mon", "# x", ""]),
            st.lists(PIECES, max_size=5),
        ),
    ),
    st.builds(
        lambda pieces: " ".join([DAILY, *pieces, "command=/bin/a"]), st.lists(PIECES, max_size=3)
    ),
)


@searching(200)
@given(st.lists(LINES, max_size=6), st.binary(max_size=4), st.sampled_from(["\n", "\r\n"]))
@example([f"{DAILY} command='", f"{DAILY} command= x", f"{DAILY} @win('"], b"", "\n")
@example([f"{DAILY} name=\x1f env=\x1f=\u2028 command=\u2028\x1fa"], b"\xef\xbb\xbf", "\n")
def test_nothing_that_a_file_can_hold_is_lost_or_breaks_the_translation(
    lines: list[str], tail: bytes, end: str
) -> None:
    content = "".join(line + end for line in lines).encode(errors="surrogatepass") + tail
    translation = translate(content)
    told = [
        *(job.line for job in translation.jobs),
        *(remark.line for remark in translation.untranslated),
    ]
    expected = lines_of(content.removeprefix(b"\xef\xbb\xbf"))
    assert sorted(told) == [number for number, line in enumerate(expected, 1) if not is_idle(line)]
    assert all(remark.reason for remark in translation.untranslated)
    data = tomllib.loads(registry_text("k", translation))
    assert data.get("task", []) == [job.table for job in translation.jobs]
    if translation.jobs:
        registry = registry_of(translation)
        assert registry.errors == []
        assert [list(task.command or ()) for task in registry.tasks] == [
            job.table["command"] for job in translation.jobs
        ]


def test_six_thousand_lines() -> None:
    lines = [
        f"{n % 60} {n % 24} * * * @win(after,{n % 50}m) @seed(daily,salt=s{n % 9}) "
        f"name=j{n} command=/bin/a"
        for n in range(6_000)
    ]
    counted: list[int] = []
    translation = translate("\n".join(lines).encode(), counted.append)
    assert len(translation.jobs) == 6_000 == sum(counted)


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(import_, list(arguments), input=stdin)


def test_the_command_writes_the_file_and_reports_the_rest(tmp_path: Path) -> None:
    krontab, output = tmp_path / "jobs.kron", tmp_path / "tasks.toml"
    krontab.write_text(
        f"{DAILY} @win(after,3h) name=backup command=/bin/b\n{DAILY} @wim(x) {END}\n{DAILY} "
        "command=/bin/c\n"
    )
    done = run("--kron", str(krontab), "--output", str(output))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f'{krontab}:2: the directive "@wim" is unknown; known: @tz, @win, @dist, @seed, '
        "@policy, @only, @avoid",
        f'{krontab}:3: note: has no name, which Kron asks for; the task is called "c"',
        f"{output}: 2 tasks written; 1 line was not translated",
    ]
    text = output.read_text()
    assert text.startswith(
        f"#:schema ./cronpoll.schema.json\n# Written by cronpoll import --kron from {krontab}.\n"
    )
    assert "#   line 2: the directive" in text
    assert 'window = { mode = "after", duration = "3h" }\n' in text
    assert "cwd" not in tomllib.loads(text)["defaults"]


def test_the_report_for_machines() -> None:
    done = run("--kron", "--json", "-", stdin=f"{DAILY} @only(hours=0-3) {END}\nx\n")
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert report.keys() == {"file", "complete", "tasks", "untranslated", "notes", "toml"}
    assert [(task["line"], task["name"], task["only"]) for task in report["tasks"]] == [
        (1, "a", {"hours": ["0-3"]})
    ]
    assert [remark["line"] for remark in report["untranslated"]] == [2]


def test_all_translated_is_success_and_nothing_is_guessed() -> None:
    line = f"{DAILY} {END}\n"
    assert run("--kron", "-", stdin=line).exit_code == 0
    as_crontab = tomllib.loads(run("-", stdin=line).stdout)
    assert as_crontab["task"][0]["command"] == ["/bin/sh", "-c", "name=a command=/bin/true"]


@pytest.mark.parametrize("flag", ["--system", "--user"])
def test_a_krontab_has_no_user_column(flag: str) -> None:
    done = run("--kron", flag, "-", stdin=f"{DAILY} {END}\n")
    assert done.exit_code == 2
    assert "no user column" in done.stderr
