r"""`cronpoll import`: crontabs become registry files that run when cron would have run them;
nothing is lost silently.

The judge of times is cronsim, which follows Debian's cron, star flag included. It shares no code
with the translation.
"""

from __future__ import annotations

import grp
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cronpoll.cli.importing import LARGE, import_, registry_text
from cronpoll.cli.main import main
from cronpoll.config.check import Rules, check, check_content
from cronpoll.config.registry import Registry
from cronpoll.config.spreads import constraints
from cronpoll.convert.commands import ARGUMENT_LIMIT, split_command
from cronpoll.convert.crontab import Job, Translation, translate
from cronpoll.convert.environment import PATH, environment_setting
from cronpoll.convert.guessing import guess_owner, guess_system
from cronpoll.convert.lines import is_idle, lines_of
from cronpoll.convert.names import slug
from cronpoll.core.cron import Schedule, parse
from cronpoll.core.dialect import Clause, UntranslatableError, timing
from cronpoll.core.periods import Constraints, Spread, Window, choose
from cronpoll.core.windows import PeriodSchedule
from cronpoll.core.zones import zone_of
from tests.tools.support import searching

NOW = datetime(2026, 7, 1, tzinfo=UTC)
STARTS = [
    datetime(2024, 2, 28, 23, 59, tzinfo=UTC),  # before a leap day
    datetime(2026, 7, 15, 12, 30, tzinfo=UTC),
    datetime(2099, 12, 31, 23, 58, tzinfo=UTC),  # before a year that is no leap year
]
ROOT = Path(__file__).parent.parent.parent


def translated(text: str | bytes, *, system: bool = False, owner: str | None = None) -> Translation:
    return translate(text.encode() if isinstance(text, str) else text, system=system, owner=owner)


def registry_of(translation: Translation) -> Registry:
    """The written file as `cronpoll validate` reads it."""
    return check_content(
        registry_text("c", translation).encode(), "t.toml", NOW, UTC, Rules(imports=False)
    )


def reasons(text: str | bytes, *, system: bool = False) -> dict[int, str]:
    return {remark.line: remark.reason for remark in translated(text, system=system).untranslated}


def notes(text: str | bytes, *, system: bool = False) -> dict[int, str]:
    return {remark.line: remark.reason for remark in translated(text, system=system).notes}


def only_job(text: str | bytes, *, system: bool = False) -> Job:
    (job,) = translated(text, system=system).jobs
    return job


def by_cronpoll(
    cron: str, start: datetime, number: int, only: Constraints | None = None
) -> list[datetime]:
    schedule: Schedule | PeriodSchedule = Schedule(parse(cron), zone_of(UTC), False)
    if only is not None:
        schedule = PeriodSchedule("task", Spread(only=only), schedule)
    found = []
    for _ in range(number):
        instant = schedule.next_after(start)
        assert instant is not None
        found.append(start := instant)
    return found


def only_of(clause: Clause | None) -> Constraints | None:
    return None if clause is None else constraints({clause.name: list(clause.values)})


def by_cronsim(expression: str, start: datetime, number: int) -> list[datetime]:
    return list(itertools.islice(CronSim(expression, start), number))


MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def expression_in(line: str) -> str:
    """The schedule of a line of a crontab, for the judge."""
    words = line.strip().removeprefix("-").split()
    return MACROS[words[0]] if words[0].startswith("@") else " ".join(words[:5])


# -- a corpus --------------------------------------------------------------------------------------


class Crontab(NamedTuple):
    """A file as it is found on machines, and the lines of it that have no translation, with a part
    of the reason."""

    path: str
    text: str
    untranslated: Mapping[int, str] = MappingProxyType({})


CORPUS = [
    Crontab(
        "/etc/crontab",
        """\
# /etc/crontab: system-wide crontab
# Unlike any other crontab you don't have to run the `crontab'
# command to install the new version when you edit this file
# and files in /etc/cron.d. These files also have username fields,
# that none of the other crontabs do.

SHELL=/bin/sh
# You can also override PATH, but by default, newer versions inherit it from the environment
#PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# Example of job definition:
# .---------------- minute (0 - 59)
# |  .------------- hour (0 - 23)
# |  |  .---------- day of month (1 - 31)
# |  |  |  .------- month (1 - 12) OR jan,feb,mar,apr ...
# |  |  |  |  .---- day of week (0 - 6) (Sunday=0 or 7) OR sun,mon,tue,wed,thu,fri,sat
# |  |  |  |  |
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6\t1 * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
#
""",
    ),
    Crontab(
        "/etc/cron.d/e2scrub_all",
        "30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 "
        "/usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron\n"
        "10 3 * * * root test -e /run/systemd/system || SERVICE_MODE=1 /sbin/e2scrub_all -A -r\n",
    ),
    Crontab(
        "/etc/cron.d/popularity-contest",
        "SHELL=/bin/sh\n"
        "PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin\n"
        "36 15 * * *   root    test -x /etc/cron.daily/popularity-contest && "
        "/etc/cron.daily/popularity-contest --crond\n",
    ),
    Crontab(
        "/etc/cron.d/php",
        "# Look for and purge old sessions every 30 minutes\n"
        "09,39 *     * * *     root   [ -x /usr/lib/php/sessionclean ] && if [ ! -d "
        "/run/systemd/system ]; then "
        "/usr/lib/php/sessionclean; fi\n",
    ),
    Crontab(
        "/etc/cron.d/mdadm",
        "#\n# cron.d/mdadm -- schedules periodic redundancy checks of MD devices\n#\n\n"
        "57 0 * * 0 root if [ -x /usr/share/mdadm/checkarray ] && [ $(date +\\%d) -le 7 ]; then "
        "/usr/share/mdadm/checkarray --cron --all --idle --quiet; fi\n",
    ),
    Crontab(
        "/etc/cron.d/sysstat",
        "PATH=/usr/lib/sysstat:/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin\n\n"
        "# Activity reports every 10 minutes everyday\n"
        "5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1\n\n"
        "# Additional run at 23:59 to rotate the statistics file\n"
        "59 23 * * * root command -v debian-sa1 > /dev/null && debian-sa1 60 2\n",
    ),
    Crontab(
        "/etc/cron.d/certbot",
        "SHELL=/bin/sh\nPATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin\n\n"
        "0 */12 * * * root test -x /usr/bin/certbot -a \\! -d /run/systemd/system && "
        "perl -e 'sleep int(rand(43200))' && certbot -q renew --no-random-sleep-on-renew\n",
    ),
    Crontab(
        "/etc/cron.d/anacron",
        "# /etc/cron.d/anacron: crontab entries for the anacron package\n\nSHELL=/bin/sh\n\n"
        "30 7-23 * * *   root\t[ -x /etc/init.d/anacron ] && if [ ! -d /run/systemd/system ]; then "
        "/usr/sbin/invoke-rc.d anacron start >/dev/null; fi\n",
    ),
    Crontab(
        "/etc/cron.d/0hourly",
        "# Run the hourly jobs\nSHELL=/bin/bash\nPATH=/sbin:/bin:/usr/sbin:/usr/bin\nMAILTO=root\n"
        "01 * * * * root run-parts /etc/cron.hourly\n",
    ),
    Crontab(
        "/etc/cron.d/raid-check",
        "# Run system wide raid-check once a week\n0 1 * * Sun root /usr/sbin/raid-check\n",
    ),
    Crontab(
        "/etc/cron.d/munin",
        "MAILTO=root\n\n"
        "@reboot         root  if [ ! -d /var/run/munin ]; then install -o munin -g munin "
        "-d /var/run/munin; fi\n"
        "*/5 * * * *     munin if [ -x /usr/bin/munin-cron ]; then /usr/bin/munin-cron; fi\n"
        "14 10 * * *     munin if [ -x /usr/share/munin/munin-limits ]; then "
        "/usr/share/munin/munin-limits --force; fi\n",
    ),
    Crontab(
        "/etc/cron.d/logcheck",
        "PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin\nMAILTO=root\n\n"
        "@reboot         logcheck    if [ -x /usr/sbin/logcheck ]; then nice -n10 "
        "/usr/sbin/logcheck -R; fi\n"
        "2 * * * *       logcheck    if [ -x /usr/sbin/logcheck ]; then nice -n10 "
        "/usr/sbin/logcheck; fi\n\n# EOF\n",
    ),
    Crontab(
        "/etc/cron.d/suse",
        "SHELL=/bin/sh\nMAILTO=root\n"
        "-*/15 * * * *   root  test -x /usr/lib/cron/run-crons && /usr/lib/cron/run-crons "
        ">/dev/null 2>&1\n",
    ),
    Crontab(
        "/etc/cron.d/logrotate",
        'MAILTO=""\n@daily root /usr/sbin/logrotate /etc/logrotate.conf\n'
        "@hourly www-data /usr/sbin/logrotate --state /var/lib/shop/status /etc/logrotate.d/shop\n",
    ),
    Crontab(
        "/etc/cron.d/mailman",
        "MAILTO = ''\n0 8 * * *\tlist [ -x /usr/lib/mailman/cron/checkdbs ] && "
        "/usr/lib/mailman/cron/checkdbs\n"
        "0,5,10,15,20,25,30,35,40,45,50,55 * * * * list /usr/lib/mailman/cron/gate_news\n"
        "0 5 1 * *\tlist\t/usr/lib/mailman/cron/mailpasswds\n30 3 * * *    "
        "list\t/usr/lib/mailman/cron/nightly_gzip\n",
    ),
    Crontab(
        "/etc/cron.d/cronie",
        "RANDOM_DELAY=30\nCRON_TZ=America/New_York\n~ 2 * * * root "
        "/usr/bin/spread\n0~59/10 * * * * root spread\n"
        "0 3 * * * root /usr/bin/at-three-in-new-york\n",
        {3: "random", 4: "random"},
    ),
    Crontab(
        "/etc/cron.d/freebsd",
        "*/5 * * * * operator /usr/libexec/atrun\n@every_minute root /usr/libexec/save-entropy\n"
        "0 * * * * root:wheel newsyslog\n1,31 0-5 * * * root adjkerntz -a\n30 4 1 * * root "
        "-q periodic monthly\n",
        {2: "@every_minute", 3: "FreeBSD", 5: "BSD"},
    ),
    Crontab(
        "/var/spool/cron/crontabs/alice",
        """\
# Edit this file to introduce tasks to be run by cron.
#
# m h  dom mon dow   command
MAILTO="alice@example.org"
PATH = "/home/alice/bin:/usr/bin:/bin"
GREETING = ' two  blanks '
  EMPTY=''
CRON_TZ=Europe/Berlin
0 9 * * mon-fri       echo "Good morning" | mail -s "$GREETING" alice
30 17 * * MON,wed,Fri /home/alice/bin/leave.sh
*/15 9-17 * * 1-5     /home/alice/bin/poll --quiet
CRON_TZ=
0 5 1,15 * *          tar czf /backup/home-$(date +\\%Y\\%m\\%d).tgz /home/alice
0 6 1-7 * sun         echo first week or Sunday
15 10 * jan-mar/2 7   /home/alice/bin/report
0 0 29 2 *            echo leap
@weekly               /usr/bin/find $HOME/tmp -mtime +7 -delete
@monthly              mail -s Bill alice@example.org%Hello,%%please pay 100\\% of it.%Alice
@reboot               /home/alice/bin/agent
@yearly               echo happy new year
""",
        {12: 'written as ""'},
    ),
    Crontab(
        "/var/spool/cron/deploy",
        """\
*/5 * * * * php -f /var/www/nextcloud/cron.php
16 0 * * * "/root/.acme.sh"/acme.sh --cron --home "/root/.acme.sh" > /dev/null
* * * * * cd /srv/app && php artisan schedule:run >> /dev/null 2>&1
0 */4 * * *\t/usr/bin/rsnapshot alpha
30 3 * * *\t/usr/bin/rsnapshot beta
0 3 * * 1\t/usr/bin/rsnapshot gamma
30 2 1 * *\t/usr/bin/rsnapshot delta
15 2 * * 1-6 pg_dump -Fc shop > "/backup/shop-$(date +\\%F).dump" && find /backup -mtime +14 -delete
0 8-18/2 * mar-oct mon-fri flock -n /tmp/sync.lock /opt/bin/sync.py --all
0 12 24-31 12 * echo holidays
0 4 * * 2,4,6 sudo -n systemctl restart worker
@midnight find . -name '*.pyc' -delete
@annually echo once
""",
    ),
    Crontab(
        "/home/bob/my.crontab",
        """\
SHELL=/bin/bash
HOME=/srv/bob
TZ=Asia/Tokyo
*/2 * * * * date
0-59/7 */3 * * * date
1-59/2 0-23/4 1-31/5 1-12/3 0-7/2 date
0 0 */2 * * date
0 0 */2 * mon date
0 0 1-15 * */3 date
0 0 */1 * mon date
0 0 1-31 * mon date
0 0 13 * 5 date
0 0 13 * 0-7 date
0 0 31 * 7 date
0 0 30 2 * date
5/15 * * * * date
0 22-4 * * * date
0 0 * * fri-sun date
0 0 * * monday date
0 24 * * * date
60 * * * * date
0 0 0 * * date
0 0 L * * date
0 0 * * 5#2 date
0 0 ? * 1 date
H * * * * date
*/0 * * * * date
1,,2 * * * * date
* * * * *
* * * *
* * * * * * date
nonsense
@Daily date
@every 5m date
@daily
0 0 1 1 * date +\\%s
""",
        {
            15: "never comes",
            16: "step after a single value",
            17: "starts after its end",
            18: "starts after its end",
            19: "expected a number",
            20: "outside",
            21: "outside",
            22: "outside",
            23: "Quartz",
            24: "Quartz",
            25: "Quartz",
            26: "Jenkins",
            27: "step",
            28: "empty element",
            29: "expected five fields and a command",
            30: "expected five fields and a command",
            31: "six fields",
            32: "minute field",
            33: "lower case",
            34: "macros of Vixie",
            35: "no command",
        },
    ),
]


def of_corpus(crontab: Crontab) -> Translation:
    content = crontab.text.encode()
    return translate(
        content, system=guess_system(crontab.path, content), owner=guess_owner(crontab.path)
    )


every_crontab = pytest.mark.parametrize("crontab", CORPUS, ids=lambda crontab: crontab.path)


@every_crontab
def test_every_line_is_translated_or_reported(crontab: Crontab) -> None:
    translation = of_corpus(crontab)
    expected = [
        number
        for number, line in enumerate(crontab.text.split("\n"), 1)
        if line.strip() and line.strip()[0] != "#"
    ]
    told = [
        *(job.line for job in translation.jobs),
        *translation.settings,
        *(remark.line for remark in translation.untranslated),
    ]
    assert sorted(told) == expected


@every_crontab
def test_what_is_reported_is_what_has_no_translation(crontab: Crontab) -> None:
    found = {remark.line: remark.reason for remark in of_corpus(crontab).untranslated}
    assert found.keys() == crontab.untranslated.keys()
    for line, part in crontab.untranslated.items():
        assert part in found[line]


@every_crontab
def test_the_written_file_is_accepted_and_runs_when_the_crontab_does(
    crontab: Crontab, tmp_path: Path
) -> None:
    translation = of_corpus(crontab)
    file = tmp_path / "tasks.toml"
    file.write_text(registry_text(crontab.path, translation))
    registry = check(str(file), NOW, UTC, Rules(imports=False))
    assert registry.errors == []
    assert len(registry.tasks) == len(translation.jobs)
    lines = crontab.text.split("\n")
    for job, task in zip(translation.jobs, registry.tasks, strict=True):
        original = lines[job.line - 1]
        assert task.description == original.strip()
        assert (task.on_start == "boot") is original.startswith("@reboot")
        for start in STARTS if task.cron else ():
            ours = by_cronpoll(task.cron, start, 300, task.only)
            assert ours == by_cronsim(expression_in(original), start, 300), original


@every_crontab
def test_the_written_tasks_are_the_jobs(crontab: Crontab) -> None:
    translation = of_corpus(crontab)
    for job, task in zip(translation.jobs, registry_of(translation).tasks, strict=True):
        assert (task.name, task.cron, task.command, task.env) == (
            job.name,
            job.cron,
            job.command,
            {"PATH": PATH} | job.env,
        )
        assert (task.user, task.timezone, task.cwd) == (job.user, job.timezone, job.cwd)
        assert (task.repeated_hour, task.max_attempts) == (job.repeated_hour, 1)
        assert task.window == (Window("after", job.delay * 60_000) if job.delay else None)
        assert task.only == only_of(job.only)
        assert (task.catch_up, task.concurrency, task.interrupted) == ("never", "allow", "abandon")


def test_the_corpus_is_not_empty() -> None:
    translations = [of_corpus(crontab) for crontab in CORPUS]
    assert sum(len(translation.jobs) for translation in translations) >= 60
    assert sum(len(translation.untranslated) for translation in translations) >= 25
    assert [translation.system for translation in translations].count(False) == 3


# -- schedules -------------------------------------------------------------------------------------

SCHEDULES = [
    ("steps are written out", "*/15 * * * *", "0,15,30,45 * * * *"),
    ("a step over a range", "10-30/10 * * * *", "10,20,30 * * * *"),
    ("a step larger than the field", "*/90 * * * *", "0 * * * *"),
    ("a step of one", "*/1 */1 */1 */1 */1", "* * * * *"),
    ("three in a row become a range, two do not", "1,2,3,5,6,9 * * * *", "1-3,5,6,9 * * * *"),
    ("names of months, in any case", "0 0 1 JAN,apr-Jun *", "0 0 1 1,4-6 *"),
    ("names of weekdays", "0 0 * * sun,Tue-THU", "0 0 * * 0,2-4"),
    ("a step over names", "0 0 * * mon-fri/2", "0 0 * * 1,3,5"),
    ("weekday 7 is Sunday", "0 0 * * 7", "0 0 * * 0"),
    ("a range up to weekday 7", "0 0 * * 5-7", "0 0 * * 0,5,6"),
    ("leading zeros", "05 007 * * *", "5 7 * * *"),
    ("a full list is a star", "0-29,30-59 * * * *", "* * * * *"),
    ("a star in a list", "5,* * * * *", "* * * * *"),
    ("day or weekday: both written", "0 0 1,15 * mon", "0 0 1,15 * 1"),
    ("day or weekday: every day because of the days", "0 0 1-31 * mon", "0 0 * * *"),
    ("day or weekday: every day because of the weekdays", "0 0 13 * 0-6", "0 0 * * *"),
    ("day or weekday: a star that is not the first character", "0 0 1,* * mon", "0 0 * * *"),
    ("day and weekday: full days that begin with a star", "0 0 *,5 * mon", "0 0 * * 1"),
    ("day and weekday: a star with step and no weekday", "0 0 */10 * *", "0 0 1,11,21,31 * *"),
    ("day and weekday: a weekday star with step and no day", "0 0 * * */2", "0 0 * * 0,2,4,6"),
    ("day and weekday: written weekdays that are all", "0 0 */10 * 1-7", "0 0 1,11,21,31 * *"),
    ("day and weekday: days that are all of February", "0 0 1-29 2 */3", "0 0 * 2 0,3,6"),
    ("day and weekday: days that are all of short months", "0 0 1-30 4,6 */3", "0 0 * 4,6 0,3,6"),
    ("day or weekday: a day that never comes beside a weekday", "0 0 31 2 mon", "0 0 31 2 1"),
    *((f"the macro {macro}", macro, expression) for macro, expression in MACROS.items()),
]


@pytest.mark.parametrize(
    ("original", "expected"), [row[1:] for row in SCHEDULES], ids=[row[0] for row in SCHEDULES]
)
def test_a_schedule_in_the_strict_language(original: str, expected: str) -> None:
    assert timing(original)[::2] == (expected, None)
    for start in STARTS:
        assert by_cronpoll(expected, start, 200) == by_cronsim(
            MACROS.get(original, original), start, 200
        )


MONTHS = ["JAN", "feb", "Mar", "apr", "MAY", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "Mon", "TUE", "wed", "thu", "fri", "sat"]
FIELDS = [(0, 59, []), (0, 23, []), (1, 31, []), (1, 12, MONTHS), (0, 7, WEEKDAYS)]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, names: list[str]) -> str:
    """A field as Vixie cron accepts it."""

    def value(number: int) -> str:
        index = number - low
        if index < len(names) and draw(st.booleans()):
            return names[index]
        return draw(st.sampled_from([str(number), f"{number:02d}"]))

    def element() -> str:
        kind = draw(
            st.sampled_from(["star", "star", "star step", "value", "value", "range", "range step"])
        )
        step = draw(st.integers(1, high + 2))
        first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        if kind == "star":
            return "*"
        if kind == "star step":
            return f"*/{step}"
        # cronsim takes 5-5/2 for 5/2, and that for 5-59/2; cron does not.
        if kind == "range step" and first < last:
            return f"{value(first)}-{value(last)}/{step}"
        return value(first) if kind == "value" else f"{value(first)}-{value(last)}"

    return ",".join(element() for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))))


EXPRESSIONS = st.tuples(*(fields(*field) for field in FIELDS)).map(" ".join)

CALENDAR = [
    (month, day, weekday)
    for month, length in enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), 1)
    for day in range(1, length + 1)
    for weekday in range(7)
]
"""Every day that ever comes: in 400 years each date falls on each weekday."""


def can_be_said(judge: CronSim) -> bool:
    """Whether the days of an expression are days, weekdays or a union of both, in its months: by
    trying the largest."""
    there = [date for date in CALENDAR if date[0] in judge.months]
    weekdays = {weekday % 7 for weekday in judge.weekdays}
    meant = {
        (month, day, weekday)
        for month, day, weekday in there
        if (all if judge.day_and else any)((day in judge.days, weekday in weekdays))
    }
    if not meant:
        return False
    days = {day for day in range(1, 32) if all(date in meant for date in there if date[1] == day)}
    whole = {
        weekday
        for weekday in range(7)
        if all(date in meant for date in there if date[2] == weekday)
    }
    return meant == {date for date in there if date[1] in days or date[2] in whole}


ODD = (*range(1, 32, 2),)
INTERSECTIONS = [
    ("every other day, if it is a Monday", "0 0 */2 * mon", "0 0 * * 1", Clause("dom", ODD)),
    ("the first week's Sunday", "0 0 1-7 * */7", "0 0 * * 0", Clause("dom", ("1-7",))),
    ("a day that is rarer than the weekdays", "0 9 13 * */5", "0 9 13 * *", Clause("dow", (0, 5))),
    ("the thirteenth, if it is no weekend", "0 9 13 * *,1", "0 9 13 * *", None),
    (
        "every hour of working days",
        "0 */1 */3 * 1-5",
        "0 * 1,4,7,10,13,16,19,22,25,28,31 * *",
        Clause("dow", ("1-5",)),
    ),
    ("a leap day on Sunday", "0 0 29 2 */7", "0 0 29 2 *", Clause("dow", (0,))),
    (
        "every five minutes of odd Mondays",
        "*/5 * */2 * 1",
        "0,5,10,15,20,25,30,35,40,45,50,55 * * * 1",
        Clause("dom", ODD),
    ),
]


@pytest.mark.parametrize(
    ("original", "cron", "only"),
    [row[1:] for row in INTERSECTIONS],
    ids=[row[0] for row in INTERSECTIONS],
)
def test_a_day_and_a_weekday_that_both_have_to_match(
    original: str, cron: str, only: Clause | None
) -> None:
    assert timing(original)[::2] == (cron, only)
    number = 5 if " 29 2 " in original else 500  # the fifth leap day on a Sunday is 140 years away
    for start in STARTS[:2]:
        assert by_cronpoll(cron, start, number, only_of(only)) == by_cronsim(
            original, start, number
        )


def test_an_intersection_is_noted_and_written() -> None:
    translation = translated("0 0 13 * */5 a\n")
    assert "only = { dow = [0, 5] }" in registry_text("c", translation)
    (note,) = translation.notes
    assert "unschedulable" in note.reason
    (task,) = registry_of(translation).tasks
    assert task.only == Constraints(dow=(0, 5))


def test_an_intersection_of_every_minute_passes_over_the_days_it_refuses() -> None:
    found = timing("* * */2 * mon")
    plain = Schedule(parse(found.cron), zone_of(UTC), first_only=False)
    here = PeriodSchedule("a", Spread(only=only_of(found.only)), plain)
    last = datetime(
        2026, 6, 1, 23, 59, tzinfo=UTC
    )  # a Monday, and odd; the next such day is a fortnight away
    assert here.next_after(last) == datetime(2026, 6, 15, tzinfo=UTC)
    assert here.previous_at_or_before(datetime(2026, 6, 14, 23, 59, tzinfo=UTC)) == last


def attempted(expression: str) -> tuple[str | None, Clause | None, str]:
    """The translation of a schedule, or the reason why there is none."""
    try:
        found = timing(expression)
    except UntranslatableError as error:
        return None, None, str(error)
    return found.cron, found.only, ""


@searching(250)
@given(EXPRESSIONS)
@example("0 0 */2 * mon")
@example("0 0 1-29 feb */2")
@example("0 0 *,1 * 0-7")
@example("*/30 * 5,6 * */6")
def test_any_schedule_of_vixie_cron_is_translated_exactly_or_cannot_be(expression: str) -> None:
    try:
        judge: CronSim | None = CronSim(expression, STARTS[0])
    except CronSimError:
        judge = None  # the grammar gives valid fields only: it is a day that never comes
    cron, only, reason = attempted(expression)
    if cron is None:
        assert ("never comes" if judge is None else "match both") in reason
        # Of the two ways to write it, one refuses hardly ever more than 20 days in a row.
        assert judge is None or (
            not can_be_said(judge) and len(judge.minutes) * (len(judge.hours) + 1) > 1_000 / 20
        )
        return
    assert judge is not None
    assert can_be_said(judge) is (only is None)
    for start in STARTS[:2]:
        number = 40 if only is None else 10
        assert by_cronpoll(cron, start, number, only_of(only)) == by_cronsim(
            expression, start, number
        )


BROKEN = [
    "",
    "x",
    "5/15",
    "30-10",
    "99",
    "*/0",
    "1-",
    "1--2",
    "*5",
    "1~3",
    "L",
    "?",
    "1#2",
    "mon-",
    "٣",
    "1\v2",
    "+1",
    "1.5",
]


@searching(200)
@given(
    EXPRESSIONS, st.integers(0, 4), st.sampled_from(BROKEN), st.sampled_from(["{}", "1,{}", "{},1"])
)
def test_a_broken_field_is_reported_and_names_the_field(
    expression: str, index: int, broken: str, where: str
) -> None:
    texts = expression.split()
    texts[index] = where.format(broken)
    assume(texts[index])
    (reason,) = reasons(" ".join([*texts, "true\n"])).values()
    assert re.search("minute|hour|day|month|weekday", reason)


def test_a_fixed_time_is_not_repeated_and_a_wild_one_is() -> None:
    rows = {
        "30 2 * * *": "first",
        "0,30 1-3 * * *": "first",
        "@daily": "first",
        "@weekly": "first",
        "*/30 2 * * *": "both",
        "30 * * * *": "both",
        "30 */2 * * *": "both",
        "@hourly": "both",
    }
    found = {text: only_job(f"{text} true\n").repeated_hour for text in rows}
    assert found == rows


@pytest.mark.parametrize(
    "expression",
    ["30 2 * * *", "15 1-4 * * *", "*/30 2 * * *", "30 * * * *", "0,30 2,3 * * 0", "@daily"],
)
def test_over_changes_of_the_clock_only_runs_in_the_skipped_hour_differ(expression: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    job = only_job(f"CRON_TZ=Europe/Berlin\n{expression} true\n")
    assert job.timezone == "Europe/Berlin"
    begin, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2027, 3, 1, tzinfo=UTC)
    ours, instant = set(), begin
    while (instant := parse(job.cron).next_after(instant, zone, job.repeated_hour)) < end:
        ours.add(instant)
    judge = CronSim(MACROS.get(expression, expression), begin.astimezone(zone))
    theirs = set(
        itertools.takewhile(lambda found: found < end, (found.astimezone(UTC) for found in judge))
    )
    assert ours <= theirs
    assert theirs - ours <= {
        datetime(2026, 3, 29, 1, tzinfo=UTC)
    }  # the end of the skipped hour, where cron makes up for it


# -- environment lines -----------------------------------------------------------------------------

SETTINGS: list[tuple[str, tuple[str, str] | None]] = [
    ("A=b", ("A", "b")),
    ("A = b", ("A", "b")),
    ("A\t=\tb", ("A", "b")),
    ("A=b c  d  ", ("A", "b c  d")),
    ("A='b '", ("A", "b")),
    ('A="  b \t "  ', ("A", "  b")),
    ('A=" b"  ', ("A", " b")),
    ('A="it\'s"', ("A", "it's")),
    ("A='say \"x\"'", ("A", 'say "x"')),
    ("A=b'c", ("A", "b'c")),
    ('A=b"c"', ("A", 'b"c"')),
    ("A=''", ("A", "")),
    ("A=$HOME/bin", ("A", "$HOME/bin")),
    ("A=b # no comment", ("A", "b # no comment")),
    ("A=b=c", ("A", "b=c")),
    ("A==b", ("A", "=b")),
    ("'A'=b", ("A", "b")),
    ('"A B" = c', ("A B", "c")),
    ("A.b-c=d", ("A.b-c", "d")),
    ("A=%", ("A", "%")),
    ("=b", ("", "b")),
    ("A=", None),
    ("A=  ", None),
    ("A", None),
    ("A b=c", None),
    ("'A=b'", None),
    ("'A", None),
    ("'A'b=c", None),
    ("A='b", None),
    ("A='", None),
    ('A="b" c', None),
    ("A='b'c", None),
    ("* * * * * A=b true", None),
    ("0 0 * * * =", None),
]


@pytest.mark.parametrize(("line", "expected"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_an_environment_line_as_vixie_cron_reads_it(
    line: str, expected: tuple[str, str] | None
) -> None:
    assert environment_setting(line) == expected


def test_settings_hold_for_the_lines_below_them() -> None:
    text = "* * * * * a\nX=1\n* * * * * b\nX=2\nY='3'\n* * * * * c\n"
    assert [job.env for job in translated(text).jobs] == [{}, {"X": "1"}, {"X": "2", "Y": "3"}]


def test_the_shell_runs_the_command_and_is_in_its_environment() -> None:
    job = only_job("SHELL=/bin/bash\n* * * * * a  b \n")
    assert job.command == ("/bin/bash", "-c", "a  b ")
    assert job.env == {"SHELL": "/bin/bash"}


def test_home_is_where_the_command_begins() -> None:
    job = only_job("HOME=/srv\n* * * * * a\n")
    assert (job.cwd, job.env) == ("/srv", {"HOME": "/srv"})


def test_the_zone_of_cron_is_the_zone_of_the_schedule_and_that_of_the_command_is_not() -> None:
    text = (
        "TZ=Asia/Tokyo\n* * * * * a\nCRON_TZ=Europe/Paris\n* * * * * b\nCRON_TZ=''\n* * * * * c\n"
    )
    jobs = translated(text).jobs
    assert [job.timezone for job in jobs] == [None, "Europe/Paris", None]
    assert [job.env for job in jobs] == [{"TZ": "Asia/Tokyo"}] * 3
    assert notes(text).keys() == {1, 3}


def test_what_is_meant_for_cron_is_not_in_the_environment_unless_the_command_names_it() -> None:
    text = "MAILTO=a@b\nCONTENT_TYPE=x\nCRON_TZ=UTC\nX=1\n* * * * * a\n* * * * * mail $MAILTO\n"
    assert [job.env for job in translated(text).jobs] == [{"X": "1"}, {"X": "1", "MAILTO": "a@b"}]
    assert "became notify" in notes(text)[1]


def test_no_mail_is_no_news() -> None:
    assert notes('MAILTO=""\n* * * * * a\n') == {}


def test_the_names_of_the_user_are_explained() -> None:
    text = "LOGNAME=x\nUSER=y\n* * * * * a\n"
    assert only_job(text).env == {"USER": "y"}
    assert notes(text).keys() == {1, 2}


LOST = [
    ("an unknown zone", "CRON_TZ=Mars/Olympus", "CRON_TZ=UTC"),
    ("a shell that cannot be started", "SHELL=bash", "SHELL=/bin/bash"),
    ("a home that is nowhere", "HOME=''", "HOME=/root"),
    ("a value that is not UTF-8", "X=\udcff", "X=1"),
    ("a value with NUL", "X=a\0b", "X=1"),
]


@pytest.mark.parametrize(("bad", "good"), [row[1:] for row in LOST], ids=[row[0] for row in LOST])
def test_a_setting_that_cannot_be_followed_takes_the_jobs_below_with_it(
    bad: str, good: str
) -> None:
    text = f"* * * * * a\n{bad}\n* * * * * b\n* * * * * c\n{good}\n* * * * * d\n"
    translation = translated(text.encode(errors="surrogateescape"))
    assert [job.line for job in translation.jobs] == [1, 6]
    assert [remark.line for remark in translation.untranslated] == [2, 3, 4]
    assert "line 2" in translation.untranslated[1].reason


@pytest.mark.parametrize("line", ["A='b", 'A="b" c', "A=", "A='"])
def test_a_setting_that_cron_refuses_is_explained(line: str) -> None:
    assert re.search("quotes|empty value", reasons(f"{line}\n")[1])


def test_a_random_delay_is_a_window_for_the_lines_below() -> None:
    text = "0 3 * * * a\nRANDOM_DELAY=45\n0 3 * * * b\nRANDOM_DELAY=0\n0 3 * * * c\n"
    translation = translated(text)
    assert [job.delay for job in translation.jobs] == [0, 45, 0]
    assert (translation.untranslated, translation.settings) == ([], [2, 4])
    assert notes(text).keys() == {2}
    assert "not chance but computed" in notes(text)[2]
    assert 'window = { mode = "after", duration = "45m" }' in registry_text("c", translation)
    registry = registry_of(translation)
    assert registry.errors == []
    spread = registry.tasks[1].spread
    assert spread == Spread(window=Window("after", 2_700_000))
    nominal = datetime(2026, 7, 2, 3, tzinfo=UTC)
    decisions = [choose("b", spread, UTC, nominal + timedelta(days=day)) for day in range(50)]
    delays = [choice.chosen_at - choice.period for choice in decisions if choice.chosen_at]
    assert len(delays) == 50
    assert (
        timedelta(0)
        <= min(delays)
        < timedelta(minutes=5)
        < timedelta(minutes=40)
        < max(delays)
        <= timedelta(minutes=45)
    )


@pytest.mark.parametrize("value", ["x", "-5", "1441", "5m", "''", "٣"])
def test_a_random_delay_that_cronie_refuses_is_reported_and_delays_nothing(value: str) -> None:
    translation = translated(f"RANDOM_DELAY=45\nRANDOM_DELAY={value}\n0 3 * * * a\n")
    assert [(remark.line, "cronie" in remark.reason) for remark in translation.untranslated] == [
        (2, True)
    ]
    assert [job.delay for job in translation.jobs] == [0]


def test_a_random_delay_and_an_intersection_go_together_within_a_day() -> None:
    job = only_job("RANDOM_DELAY=60\n0 22 13 * */5 a\n")
    assert (job.delay, job.only) == (60, Clause("dow", (0, 5)))
    assert "pass midnight" in reasons("RANDOM_DELAY=60\n0 23 13 * */5 a\n")[2]


# -- commands --------------------------------------------------------------------------------------

COMMANDS = [
    ("no percent sign", "echo a b", b"a b\n"),
    ("an escaped one in the command", r"printf '\%s-\%s' a b", b"a-b"),
    ("an escaped one in quotes", r"echo '50\%'", b"50%\n"),
    ("other escapes stay", r"printf 'a\tb\\'", b"a\tb\\"),
    ("input", "cat%hello", b"hello\n"),
    ("two lines", "cat%a%b", b"a\nb\n"),
    ("a line feed at the end is not doubled", "cat%a%", b"a\n"),
    ("only line feeds", "cat%%%", b"\n\n"),
    ("no input after the sign", "cat%", b""),
    ("an escaped one in the input", r"cat%100\%", b"100%\n"),
    ("two backslashes in the input", r"cat%a\\%b", b"a\\%b\n"),
    ("two backslashes in the command", r"printf \%s x\\%b", b"x\\"),
    ("other escapes stay in the input", r"cat%a\nb\t", b"a\\nb\\t\n"),
    ("a backslash as all input", "cat%\\", b"\\"),
    ("a backslash as last input", "cat%a\\", b"a\\\n"),
    ("a backslash after a line feed", "cat%a%\\", b"a\n\\"),
    (
        "quotes and dollars in the input",
        'cat%it\'s "$HOME" `date` $(id) \\x',
        b'it\'s "$HOME" `date` $(id) \\x\n',
    ),
    ("an option as input", "cat%-n", b"-n\n"),
    ("a format as input", r"cat%\%s\%d", b"%s%d\n"),
    ("blanks around the input", "cat%  a \t ", b"  a \t \n"),
    ("letters beyond ASCII", "cat%ä€😀", "ä€😀\n".encode()),
    ("a comment in the command", "cat # } ' \" ) %a", b"a\n"),
    ("braces and parentheses", "{ cat; (cat); }%a", b"a\n"),
    ("a list of commands shares the input", "read x; echo $x; cat%a%b", b"a\nb\n"),
    ("input that is not read", "echo a%b", b"a\n"),
]


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in COMMANDS], ids=[row[0] for row in COMMANDS]
)
def test_a_command_does_under_cronpoll_what_it_does_under_cron(text: str, expected: bytes) -> None:
    (task,) = registry_of(translated(f"* * * * * {text}\n")).tasks
    assert task.command is not None
    done = subprocess.run(task.command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (expected, b"")


def fed_by_cron(text: str) -> bytes:
    """What cron writes to a command for this text after the first percent sign, said without a
    state machine."""
    sent = re.sub(r"\\%|%", lambda sign: "%" if sign[0] == "\\%" else "\n", text)
    last = re.search(r"(\\%|[^\\])\\*\Z", text)  # backslashes at the end do not count
    return sent.encode() + (b"\n" if last is not None and last[1] != "%" else b"")


TEXTS = st.text(st.sampled_from("\\\\%%%ab '\"$`-#{}()\t\rä"), max_size=12)


@searching(80)
@given(TEXTS)
@example("\\%")
@example("\\\\%")
@example("\\%%\\")
def test_every_byte_that_cron_would_feed_arrives(text: str) -> None:
    job = only_job(
        f"* * * * * cat%{text}\n" if not text.endswith("\r") else f"* * * * * cat%{text}\r\n"
    )
    done = subprocess.run(job.command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (fed_by_cron(text), b"")


@searching(250)
@given(TEXTS)
def test_the_command_ends_at_the_first_percent_sign_without_backslash(text: str) -> None:
    match = re.match(r"((?:\\.|[^\\%])*\\?)(?:%(.*))?\Z", text, re.DOTALL)
    assert match is not None
    for cronie, unescaped in ((True, "%"), (False, "%\\")):
        command = re.sub(
            r"\\(.)",
            lambda pair: pair[1] if pair[1] in unescaped else pair[0],
            match[1],
            flags=re.DOTALL,
        )
        expected = (command, fed_by_cron(match[2] or "").decode())
        assert split_command(text, cronie=cronie) == expected


def test_the_status_of_a_command_with_input_is_its_own() -> None:
    job = only_job("* * * * * cat; exit 3%a\n")
    assert (
        subprocess.run(
            job.command, stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).returncode
        == 3
    )


def test_a_shell_that_is_none_gets_its_input_too() -> None:
    job = only_job(
        f"SHELL={sys.executable}\n* * * * * import sys; print(sys.stdin.read().upper(), "
        "sys.argv)%ab%c\n"
    )
    done = subprocess.run(job.command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout == b"AB\nC\n ['-c']\n"


def test_the_user_column_is_the_user() -> None:
    text = "0 0 * * *  www-data   php x\n@daily root\ty\n"
    jobs = translated(text, system=True).jobs
    assert [(job.user, job.command[2]) for job in jobs] == [("www-data", "php x"), ("root", "y")]
    assert [job.user for job in translated("@daily x\n", owner="alice").jobs] == ["alice"]


@pytest.mark.parametrize(
    "line",
    [
        "* * * * * root",
        "* * * * * /bin/true x",
        "* * * * * root:wheel x",
        "@daily root",
        "* * * * * * x",
    ],
)
def test_a_user_column_that_is_none_is_reported(line: str) -> None:
    assert re.search("user", reasons(f"{line}\n", system=True)[1])


def test_a_dash_at_the_beginning_is_noted() -> None:
    assert only_job("-* * * * * root a\n", system=True).cron == "* * * * *"
    assert "log" in notes("-* * * * * root a\n", system=True)[1]


# -- names -----------------------------------------------------------------------------------------

NAMES = [
    ("/usr/local/bin/backup.sh --full", "backup"),
    ("cd / && run-parts --report /etc/cron.hourly", "run-parts-cron-hourly"),
    (
        "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }",
        "run-parts-cron-daily",
    ),
    (
        "[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run ]; then /usr/lib/php/sessionclean; fi",
        "sessionclean",
    ),
    ("test -e /run || SERVICE_MODE=1 /sbin/e2scrub_all -A -r", "e2scrub-all"),
    ("perl -e 'sleep int(rand(43200))' && certbot -q renew", "certbot-renew"),
    ("nice -n 19 ionice -c3 timeout 5m /opt/x/sync.py", "sync"),
    ("FOO=bar env BAZ=1 python3 /srv/job.py", "job"),
    ("python3 -u -m shop.jobs nightly", "shop-jobs-nightly"),
    ("/usr/bin/php8.2 /srv/shop/artisan schedule:run", "artisan-schedule-run"),
    ("java -Xmx1g -jar /opt/report.jar", "report"),
    ('"$HOME"/bin/report | sort | uniq > /tmp/x', "report"),
    ("cat /etc/hosts | sort | /opt/tool/count.sh", "count"),
    ("sort /etc/hosts > /tmp/x", "sort-hosts"),
    ("! true; umask 077", "true"),
    ("command -v debian-sa1 > /dev/null && debian-sa1 1 1 2>&1 >>/var/log/x", "debian-sa1"),
    ("/bin/sh -c 'cd /srv && ./deploy.sh'", "deploy"),
    ('"/root/.acme.sh"/acme.sh --cron --home "/root/.acme.sh" > /dev/null', "acme"),
    ("$HOME/bin/x", "x"),
    ("$X", "task"),
    ("echo ${X:-cron}", "echo"),
    ("${X}", "task"),
    ("if [ -x ${D:-/usr}/bin/tool ]; then ${D:-/usr}/bin/tool /etc; fi", "tool-etc"),
    ("cd ${DIR:=/srv/app} && ./manage.py clearsessions", "manage-clearsessions"),
    ("", "task"),
    ("   ", "task"),
    ("ж привет", "ж-привет"),
    ("a" * 500, "a" * 40),
]


@pytest.mark.parametrize(("command", "expected"), NAMES, ids=[row[0][:40] for row in NAMES])
def test_a_name_says_what_the_command_does(command: str, expected: str) -> None:
    assert slug(command) == expected


def test_names_that_collide_are_numbered() -> None:
    text = "".join(
        f"* * * * * {command}\n" for command in ["a", "a 2", "a", "/bin/a", "A", "a-2", "a-2"]
    )
    names = [job.name for job in translated(text).jobs]
    assert names[:4] == ["a", "a-2", "a-3", "a-4"]
    assert len(set(names)) == len(names)


# -- files as they come ----------------------------------------------------------------------------


def test_a_last_line_without_line_feed_is_translated_and_noted() -> None:
    assert only_job("* * * * * a").command[2] == "a"
    assert "line feed" in notes("* * * * * a")[1]
    assert notes("* * * * * a\n# end") == {}


def test_carriage_returns_are_left_out_and_noted_once() -> None:
    text = "# x\r\n\r\nA='b'\r\n* * * * * a\r\n* * * * * b\r\n"
    translation = translated(text)
    assert [job.command[2] for job in translation.jobs] == ["a", "b"]
    assert translation.jobs[0].env == {"A": "b"}
    assert translation.untranslated == []
    assert [note.line for note in translation.notes] == [1]


def test_a_file_of_carriage_returns_only_is_not_taken_for_a_comment_in_silence() -> None:
    assert "comment" in notes("# x\r* * * * * a\r\n# y\n")[1]


def test_tabs_and_blanks_in_any_number_separate() -> None:
    job = only_job(" \t1\t 2  3\t\t4 *\t root \t a\tb\n", system=True)
    assert (job.cron, job.user, job.command[2]) == ("1 2 3 4 *", "root", "a\tb")


def test_a_byte_order_mark_is_left_out_and_noted() -> None:
    assert only_job("\ufeff* * * * * a\n").line == 1
    assert "byte order mark" in notes("\ufeff* * * * * a\n")[1]


def test_bytes_that_are_no_text_are_reported_but_not_in_comments() -> None:
    found = reasons(b"# \xff\n* * * * * a\xff\n* * * * * b\n")
    assert found.keys() == {2}
    assert "0xff" in found[2]


def test_a_line_of_a_megabyte_is_handled() -> None:
    text = (
        f"* * * * * {'a' * 10**6}\n{'1,' * 500_000}1 * * * * "
        f"a\n{'x' * 10**6}\nA={'b' * 10**6}\n* * * * * c\n"
    )
    translation = translated(text)
    assert [remark.line for remark in translation.untranslated] == [1, 3, 5]
    assert "no program can be started" in translation.untranslated[0].reason
    assert [job.cron for job in translation.jobs] == ["1 * * * *"]
    assert registry_of(translation).errors == []
    assert len(registry_text("c", translation)) < 20_000


def test_the_longest_command_that_can_be_started_is_translated() -> None:
    fits = f"true {'a' * (ARGUMENT_LIMIT - 5)}"
    job = only_job(f"* * * * * {fits}\n")
    assert subprocess.run(job.command, check=True).returncode == 0
    assert reasons(f"* * * * * {fits}a\n").keys() == {1}
    assert reasons(f"* * * * * cat%{'a' * ARGUMENT_LIMIT}\n").keys() == {1}  # with its line feed


def test_thirty_thousand_lines() -> None:
    lines = [
        f"{n % 60} {n % 24} * * * job{n % 7}" if n % 10 else f"V{n % 50}={n}" for n in range(30_000)
    ]
    counted = []
    translation = translate("\n".join(lines).encode() + b"\n", advance=counted.append)
    assert len(translation.jobs) + len(translation.settings) == 30_000 == sum(counted)
    assert len({job.name for job in translation.jobs}) == len(translation.jobs)


def test_an_environment_that_grows_without_end_is_reported() -> None:
    lines = [f"V{n // 2}=1" if n % 2 else "* * * * * a" for n in range(1_000)]
    translation = translated("\n".join(lines) + "\n")
    assert 190 < len(translation.jobs) < 210
    assert "environment lines" in translation.untranslated[0].reason


HOSTILE = [
    'echo """ \'\'\' " \\ \\u0041 # [task] = {',
    "]] \n".strip() + ' name = "x"',
    "echo \x1b[31m\x07\x7f \x85\u2028\u2029\ufeff",
    "a\\",
    "'''",
    '"""',
    "\ud7ff\ue000\U0010ffff",
]


@pytest.mark.parametrize("command", HOSTILE)
def test_what_could_break_toml_arrives_unchanged(command: str) -> None:
    text = (
        f"A B = x\n'A B' = {command}\n* * * * * {command}\n@reboot {command}\n* * * * * "
        f"cat%{command}\n"
    )
    translation = translated(text)
    written = registry_text(f"a\n[task]\r{command}", translation)
    assert tomllib.loads(written)["defaults"]["catch_up"] == "never"
    registry = registry_of(translation)
    assert registry.errors == []
    assert registry.tasks[0].command == ("/bin/sh", "-c", command)
    assert (registry.tasks[1].cron, registry.tasks[1].on_start) == ("", "boot")
    assert registry.tasks[1].command == ("/bin/sh", "-c", command)
    assert registry.tasks[2].command is not None
    assert registry.tasks[2].command[4] == f"{command}\n" or command == "a\\"
    if command[0] not in "'\"":  # a value that begins with a quote ends with it
        assert all(task.env == {"PATH": PATH, "A B": command} for task in registry.tasks)
        assert [remark.line for remark in translation.untranslated] == [1]


LINES = st.one_of(
    st.text(max_size=20),
    st.text(st.sampled_from("*/-,0159 \t@%\\\r#='\"abr~\x0b\x00\x85"), max_size=30),
    st.builds("{} {}".format, EXPRESSIONS, st.text(max_size=10)),
    st.builds(
        "{}={}".format,
        st.sampled_from(["A", "SHELL", "HOME", "CRON_TZ", "MAILTO", ""]),
        st.text(max_size=10),
    ),
)


@example(["MAILTO=¹", "0 0 1 1 0 :"], False, b"", "\n")
@searching(150)
@given(
    st.lists(LINES, max_size=6),
    st.booleans(),
    st.binary(max_size=4),
    st.sampled_from(["\n", "\r\n"]),
)
def test_nothing_that_a_file_can_hold_is_lost_or_breaks_the_translation(
    lines: list[str], system: bool, tail: bytes, end: str
) -> None:
    content = "".join(line + end for line in lines).encode(errors="surrogatepass") + tail
    translation = translate(content, system=system)
    told = [
        *(job.line for job in translation.jobs),
        *translation.settings,
        *(r.line for r in translation.untranslated),
    ]
    expected = lines_of(content.removeprefix(b"\xef\xbb\xbf"))
    assert sorted(told) == [number for number, line in enumerate(expected, 1) if not is_idle(line)]
    assert isinstance(guess_system("x", content), bool)
    if translation.jobs:
        registry = registry_of(translation)
        assert registry.errors == []
        assert [(task.command, task.env) for task in registry.tasks] == [
            (j.command, {"PATH": PATH} | j.env) for j in translation.jobs
        ]


# -- what kind of file -----------------------------------------------------------------------------

KINDS = [
    ("the system's own", "/etc/crontab", "", True),
    ("one of many", "/etc/cron.d/x", "", True),
    ("in a backup", "/backup/etc/cron.d/x", "", True),
    ("the spool of Debian", "/var/spool/cron/crontabs/root", "* * * * * root x\n", False),
    ("the spool of Red Hat", "/var/spool/cron/alice", "* * * * * root x\n", False),
    ("the spool of SUSE", "/var/spool/cron/tabs/alice", "* * * * * root x\n", False),
    ("known accounts", "x", "SHELL=/bin/sh\n-0 0 * * * root x y\n@daily www-data z\n", True),
    ("an account unknown, another known", "x", "0 0 * * * shop x y\n0 0 * * * root z\n", True),
    ("accounts unknown", "x", "0 0 * * * shop x y\n", False),
    ("a path in the sixth column", "x", "0 0 * * * root x\n0 0 * * * /bin/true x\n", False),
    ("no command after the account", "x", "0 0 * * * root\n", False),
    ("a heading", "x", "# m h dom mon dow user\tcommand\n0 0 * * * shop x\n", True),
    ("a heading without user", "x", "# m h  dom mon dow   command\n", False),
    ("nothing", "x", "", False),
    ("standard input", "", "* * * * * x\n", False),
]


@pytest.mark.parametrize(
    ("path", "text", "system"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS]
)
def test_whether_there_is_a_user_column_is_guessed(path: str, text: str, system: bool) -> None:
    assert guess_system(path, text.encode()) is system


def test_a_crontab_in_the_spool_belongs_to_whom_it_is_named_after() -> None:
    assert guess_owner("/var/spool/cron/crontabs/alice") == "alice"
    assert guess_owner("/home/alice/crontab") is None


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(import_, list(arguments), input=stdin)


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    file = tmp_path / "crontab"
    file.write_text("MAILTO=x\n*/20 * * * * a\n@sometimes b\n@reboot c\n")
    return file


UNKNOWN = (
    '"@sometimes" is not among the macros of Vixie cron: @yearly, @annually, @monthly, @weekly, '
    "@daily, @midnight, @hourly, @reboot"
)


def test_the_command_is_there_and_shows_an_example() -> None:
    done = CliRunner().invoke(main, ["import", "--help"])
    assert done.exit_code == 0
    assert "Example: cronpoll import /etc/crontab --output tasks.toml" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_file_goes_to_standard_output_and_what_is_missing_to_standard_error(
    crontab: Path,
) -> None:
    done = run(str(crontab))
    assert done.exit_code == 1
    data = tomllib.loads(done.stdout)
    assert [task.get("cron") for task in data["task"]] == ["0,20,40 * * * *", None]
    assert [task.get("on_start") for task in data["task"]] == [None, "boot"]
    assert data["defaults"]["cwd"] == os.path.expanduser("~")
    assert '#   line 3: "@sometimes" is not among the macros' in done.stdout
    assert "#       @sometimes b" in done.stdout
    assert done.stderr.splitlines() == [
        f"{crontab}:1: note: MAILTO: became notify, which mails failures; cron mails whatever "
        "a job prints, which cronpoll logs shows",
        f"{crontab}:3: {UNKNOWN}",
        f"{crontab}:4: note: starts when cronpolld first starts in a boot of the machine; the "
        "very first time is such a start, too",
    ]


def test_all_translated_is_success() -> None:
    done = run("-", stdin="* * * * * a\n")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "from <stdin>" in done.stdout


def test_a_user_column_can_be_said_to_be_there_or_not() -> None:
    text = "* * * * * shop x\n"
    assert tomllib.loads(run("-", "--system", stdin=text).stdout)["task"][0]["user"] == "shop"
    assert "user" not in tomllib.loads(run("-", "--user", stdin=text).stdout)["task"][0]
    assert "cwd" not in tomllib.loads(run("-", "--system", stdin=text).stdout)["defaults"]


def test_a_file_is_written_for_its_owner_only_and_not_over_another(
    crontab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    output = tmp_path / "tasks.toml"
    done = run(str(crontab), "--output", str(output))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"{output}: 2 tasks written; 1 line was not translated"
    assert output.stat().st_mode & 0o777 == 0o600
    output.write_text("mine")
    output.chmod(0o640)
    done = run(str(crontab), "--output", str(output))
    assert (done.exit_code, output.read_text()) == (2, "mine")
    assert "--force" in done.stderr
    assert run(str(crontab), "--output", str(output), "--force").exit_code == 1
    assert output.stat().st_mode & 0o777 == 0o640
    assert check(str(output), NOW, UTC, Rules(imports=False)).errors == []
    assert sorted(os.listdir(tmp_path)) == ["crontab", "tasks.toml"]


PLAIN = "0 3 * * * /usr/bin/backup --full\n"
SECRETS = [
    "DB_PASSWORD=hunter2\n0 3 * * * backup\n",
    "API_TOKEN = abc\n0 3 * * * backup\n",
    "0 3 * * * curl https://me:hunter2@example.org/\n",
    "0 3 * * * curl -H 'Authorization: Bearer abcdefgh123' https://example.org\n",
    "0 3 * * * mysqldump -u root -phunter2 shop\n",
    "0 3 * * * backup --password hunter2\n",
    "0 3 * * * PGPASSWORD=hunter2 pg_dump shop\n",
]


def imported(tmp_path: Path, text: str, *options: str) -> tuple[os.stat_result, str]:
    file, output = tmp_path / "crontab", tmp_path / "tasks.toml"
    file.write_text(text)
    done = run(str(file), "--output", str(output), *options)
    assert done.exit_code == 0, done.stderr
    return output.stat(), done.stderr


def group(monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """The machine as root finds it, with the service's group or without."""

    def getgrnam(name: str) -> grp.struct_group:
        if number is None or name != "cronpoll":
            raise KeyError(name)
        return grp.struct_group((name, "x", number, []))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(grp, "getgrnam", getgrnam)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for others")
def test_what_root_writes_the_service_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(monkeypatch, 4321)
    for text in (PLAIN, SECRETS[0]):
        written, said = imported(tmp_path, text, "--force")
        assert (written.st_mode & 0o777, written.st_gid) == (0o640, 4321)
        assert "only root may read it" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for others")
@pytest.mark.parametrize("text", [PLAIN, *SECRETS])
def test_without_the_services_group_a_file_is_open_unless_it_seems_to_hold_secrets(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(monkeypatch, None)
    written, said = imported(tmp_path, text)
    assert written.st_mode & 0o777 == (0o644 if text is PLAIN else 0o600)
    assert ("only root may read it" in said) is (text is not PLAIN)


@pytest.mark.parametrize(
    ("home", "hidden"),
    [("/root", True), ("/home/x", True), ("/homes/x", False), ("/srv/x", False)],
)
def test_root_is_told_what_the_unit_hides(
    home: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group(monkeypatch, None)
    monkeypatch.setenv("HOME", "/srv")
    _, said = imported(tmp_path, f"HOME={home}\n{PLAIN}")
    assert (f"commands begin in {home}, which the unit's ProtectHome=yes hides" in said) is hidden
    monkeypatch.setenv("HOME", home)
    _, said = imported(tmp_path, PLAIN, "--force")
    assert (f"commands begin in {home}, which the unit's ProtectHome=yes hides" in said) is hidden


def test_with_force_a_link_stays_a_link_and_a_device_a_device(
    crontab: Path, tmp_path: Path
) -> None:
    (tmp_path / "real.toml").write_text("old")
    link = tmp_path / "link.toml"
    link.symlink_to("real.toml")
    assert run(str(crontab), "--output", str(link), "--force").exit_code == 1
    assert link.is_symlink()
    assert "[[task]]" in (tmp_path / "real.toml").read_text()
    assert run(str(crontab), "--output", os.devnull, "--force").exit_code == 1
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["/nowhere/crontab"], 3),
        (["/"], 3),
        (["-", "--output", "/nowhere/tasks.toml"], 3),
        ([], 2),
        (["-", "--format", "x"], 2),
    ],
    ids=["no file", "a directory", "no place to write", "no argument", "an unknown option"],
)
def test_what_cannot_be_done_has_its_exit_code(arguments: list[str], code: int) -> None:
    done = run(*arguments, stdin="* * * * * a\n")
    assert done.exit_code == code
    assert "Traceback" not in done.stderr
    if code == 3:
        assert len(done.stderr.splitlines()) == 1


def test_the_report_for_machines_has_everything(crontab: Path, tmp_path: Path) -> None:
    done = run(str(crontab), "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (report["file"], report["system"], report["complete"]) == (str(crontab), False, False)
    assert [
        (task["line"], task["name"], task.get("cron"), task.get("on_start"))
        for task in report["tasks"]
    ] == [(2, "a", "0,20,40 * * * *", None), (4, "c", None, "boot")]
    assert report["untranslated"] == [
        {
            "line": 3,
            "reason": UNKNOWN,
            "text": "@sometimes b",
        }
    ]
    assert [note["line"] for note in report["notes"]] == [1, 4]
    assert report["settings"] == [1]
    assert len(tomllib.loads(report["toml"])["task"]) == 2
    done = run(str(crontab), "--json", "--output", str(tmp_path / "t.toml"))
    assert "toml" not in json.loads(done.stdout)
    assert (tmp_path / "t.toml").exists()


def test_a_crontab_without_jobs_says_so() -> None:
    for text in ("# nothing\n", "5/15 * * * * x\n"):
        done = run("-", stdin=text)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "no job" in done.stderr


def test_no_file_is_written_that_validate_would_refuse(tmp_path: Path) -> None:
    done = run("-", "-o", str(tmp_path / "t.toml"), stdin="# nothing\n")
    assert done.exit_code == 1
    assert list(tmp_path.iterdir()) == []


MOVED = """\
# DO NOT EDIT THIS FILE - edit the master and reinstall.
# Shop. Ask "sales" first.
PATH=/opt/bin:/usr/bin:/bin
MAILTO=ops@example.org, root
TZ=UTC

# every night
0 3 * * * backup.sh
#0 4 * * * old.sh --full
LANG=C
0 5 * * * report.sh
# the end \x1b[31m
"""


def test_what_all_tasks_share_is_said_once_and_comments_stay_where_they_were() -> None:
    done = run("-", "--user", stdin=MOVED)
    assert done.exit_code == 0
    data = tomllib.loads(done.stdout)
    assert data["defaults"]["env"] == {"PATH": "/opt/bin:/usr/bin:/bin", "TZ": "UTC"}
    assert data["defaults"]["notify"] == {"to": "ops"}
    assert data["notify"] == {"ops": {"mail": ["ops@example.org", "root"]}}
    assert [task.get("env") for task in data["task"]] == [None, {"LANG": "C"}]
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines.index("# every night") == lines.index('name = "backup"') - 2
    assert lines.index("# 0 4 * * * old.sh --full") == lines.index('name = "report"') - 2
    assert lines[-1] == r"# the end \x1b[31m"
    assert "DO NOT EDIT" not in done.stdout
    registry = check_content(done.stdout.encode(), "t.toml", NOW, UTC, Rules(imports=False))
    assert registry.errors == []


def test_each_mail_address_is_a_target_of_its_own() -> None:
    text = (
        "0 1 * * * a\nMAILTO=ops@a\n0 1 * * * b\nMAILTO=ops@b\nMAILFROM=x@y\n0 1 * * * c\n"
        "MAILTO=''\n0 1 * * * d\n"
    )
    data = tomllib.loads(run("-", "--user", stdin=text).stdout)
    assert data["notify"] == {
        "ops": {"mail": ["ops@a"]},
        "ops-2": {"mail": ["ops@b"], "sender": "x@y"},
    }
    told = [task.get("notify", {}).get("to") for task in data["task"]]
    assert told == [None, "ops", "ops-2", None]
    assert "is no list of mail addresses" in notes("MAILTO=a b<c>\n* * * * * x\n")[1]


def test_where_crons_differ_one_is_followed_and_a_note_says_which() -> None:
    text = "A='b '\n* * * * * echo 'a\\\\b'\n* * * * * echo 'a\\b'\n"
    for cronie, value, command in ((False, "b", r"echo 'a\b'"), (True, "b ", r"echo 'a\\b'")):
        translation = translate(text.encode(), cronie=cronie)
        assert translation.jobs[0].command[2] == command
        assert translation.jobs[0].env == {"A": value}
        assert [(note.line, "cronie" in note.reason) for note in translation.notes] == [
            (1, True),
            (2, True),
        ]


REFUSED = [
    ("0 0 12 * * ? x", "six fields"),
    ("0 30 9 * * MON-FRI x", "six fields"),
    ("0 0 12 1 1 2027 x", "six fields"),
    ("*/5 * * * * * x", "six fields"),
    ("0 0 12 ? * MON x", "Quartz"),
    ("0 0 L * * x", "Quartz"),
    ("-1 * * * * x", "write it without"),
    ("* -1 * * * x", "hour field"),
    ("0 22-6 * * * x", "write 22-23,0-6"),
    ("0 0 * * 6-0 x", "write 6-7,0-0"),
]


@pytest.mark.parametrize(("line", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cron_refuses_or_never_starts_is_refused_in_words(line: str, reason: str) -> None:
    assert reason in reasons(f"{line}\n")[1]


def test_an_unescaped_percent_sign_and_a_home_that_is_none_get_a_note() -> None:
    assert notes("* * * * * date +%F\n* * * * * date +\\%F\n").keys() == {1}
    assert "begin in /" in notes("HOME=/nonexistent\n* * * * * a\n")[1]
    assert only_job("HOME=/nonexistent\n* * * * * a\n").cwd == "/"


def test_a_user_column_is_recognised_by_the_accounts_of_the_host_or_asked_about() -> None:
    host = {"account": {"shop"}.__contains__, "program": {"rsync", "x"}.__contains__}
    for line, expected in (
        ("0 0 * * * shop x y", True),
        ("0 0 * * * other /opt/x", None),
        ("0 0 * * * other x", None),
        ("0 0 * * * rsync /a /b", False),
        ("0 0 * * * other y", False),
    ):
        assert guess_system("my.crontab", f"{line}\n".encode(), **host) is expected, line
    asked = run("-", stdin="0 0 * * * no-such-account /opt/x\n")
    assert asked.exit_code == 2
    assert "--system" in asked.stderr


def test_what_does_not_print_stays_on_its_line() -> None:
    done = run("-", stdin=b"* * * * x\x1b[31m\x07 a\n@reboot \x1b\xff\n")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 3
    assert "\x1b" not in done.stderr
    assert "\x1b" not in done.stdout


def started(crontab: Path, **streams: Any) -> subprocess.Popen[bytes]:
    code = "import sys; from cronpoll.cli.importing import import_; import_(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return subprocess.Popen([sys.executable, "-c", code, str(crontab)], env=environment, **streams)


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("* * * * * a\n" * 2_000)
    with started(crontab, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("lines", "shown"), [(2 * LARGE, True), (10, False)], ids=["a large one", "a small one"]
)
def test_a_large_import_shows_its_progress_on_a_terminal(
    tmp_path: Path, lines: int, shown: bool
) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("* * * * * a\n" * lines)
    ours, theirs = os.openpty()
    with started(crontab, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 65_536):
                seen += chunk
        except OSError:  # how Linux says that the other side is closed
            pass
        assert process.wait() == 0
    os.close(ours)
    assert (b"Translating" in seen) is shown


def test_without_a_terminal_there_is_no_progress(tmp_path: Path) -> None:
    crontab = tmp_path / "crontab"
    crontab.write_text("* * * * * a\n" * 2 * LARGE)
    with started(crontab, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_first_start_after_the_import_is_the_one_cron_would_have_made() -> None:
    job = only_job("7-59/13 */5 * * * a\n")
    assert parse(job.cron).next_after(NOW + timedelta(minutes=8)) == datetime(
        2026, 7, 1, 0, 20, tzinfo=UTC
    )
