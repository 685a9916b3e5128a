"""What `import` and `takeover` say about crontabs, held against Debian's own cron on the machine of
test_systemd. Jobs of `@reboot` show what cron hands to a command without waiting for a minute."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress

import pytest

from cronpoll.convert.crontab import translate
from cronpoll.convert.takeover import disabled
from tests.system.test_systemd import Machine, machine, waited  # noqa: F401  the fixture

pytestmark = pytest.mark.booted

SCHEDULES = {
    "-1 * * * *": False,
    "* -1 * * *": False,
    "5/15 * * * *": False,
    "0 0 L * *": False,
    "0 0 12 ? * MON": False,
    "0 0 12 * * *": False,
    "@Daily": False,
    "0 22-6 * * *": True,  # it never starts such a line
    "0 0 * * 6-0": True,
    "0 0 * * 5-7": True,
    "*/20 8-18/2 1-15 jan-mar mon,7": True,
}
NEVER = ("0 22-6 * * *", "0 0 * * 6-0")
COMMANDS = {
    "backslashes": r"printf '[\%s]' 'a\\b' 'a\b' 'c\\\\d'",
    "percent": r"cat%a\\b\%c%\\%d",
    "blanks": "printf '[\\%s]' \"$QUOTED\"",
    "home": "pwd >/dev/null && echo $HOME",
    "path": "echo $PATH",
}
SETTINGS = "QUOTED='  b  '\nHOME=/nonexistent\n"


def accepted(cron: Machine, text: str) -> bool:
    cron.write("/root/tab", text)
    return cron.run("crontab", "/root/tab", check=False).returncode == 0


def test_what_debians_cron_refuses_import_refuses_and_the_rest_is_translated(
    machine: Machine,  # noqa: F811
) -> None:
    for schedule, expected in SCHEDULES.items():
        line = f"{schedule} true\n"
        assert accepted(machine, line) is expected, schedule
        translated = bool(translate(line.encode()).jobs)
        assert translated is (expected and schedule not in NEVER), schedule
    marked = disabled(b"0 3 * * * true\n", [1], "cron-user-root.toml").decode()
    assert accepted(machine, marked)
    assert machine.run("crontab", "-l").stdout == marked


def test_commands_get_from_cronpoll_what_debians_cron_gives_them(
    machine: Machine,  # noqa: F811
) -> None:
    def line(schedule: str, name: str, command: str) -> str:
        redirected = re.sub(r"(?<!\\)%|$", rf" >/root/{name}\g<0>", command, count=1)
        return f"{schedule} {redirected}\n"

    machine.run("systemctl", "stop", "cron.service")
    machine.run("rm", "-f", "/run/crond.reboot")
    ready = f"{line('@reboot', 'ready', 'echo yes')}"
    text = "".join(line("@reboot", name, command) for name, command in COMMANDS.items())
    assert accepted(machine, SETTINGS + text + ready)
    machine.run("systemctl", "start", "cron.service")
    ours = translate(
        (SETTINGS + "".join(f"* * * * * {each}\n" for each in COMMANDS.values())).encode()
    )
    for job, name in zip(ours.jobs, COMMANDS, strict=True):
        env = {"PATH": "/usr/bin:/bin"} | job.env
        done = subprocess.run(job.command, capture_output=True, check=True, env=env, cwd=job.cwd)
        path = machine.path(f"/root/{name}")
        waited(f"cron has run {name}", lambda: path.exists() and path.read_bytes() == done.stdout)
    machine.run("crontab", "-r")


SERVED = "/root/served"
DAEMON = """[daemon]
allow_empty = true
"""


def test_every_minute_around_a_takeover_and_its_undoing_is_run_once(
    machine: Machine,  # noqa: F811
) -> None:
    """Beside the real cron, over real minutes: those of cron, then those of the daemon, then those
    of cron again."""

    def cronpoll(*words: str) -> str:
        program = "import sys; from cronpoll.cli.main import main; sys.exit(main())"
        return machine.run("python3", "-Pc", program, *words).stdout

    def served() -> list[tuple[str, int]]:
        """Who ran the job, and in which minute since 1970."""
        path = machine.path(SERVED)
        lines = path.read_text().splitlines() if path.exists() else []
        runs = (line.split() for line in lines)
        return [("cron" if run == "cron" else "daemon", int(at) // 60) for run, at in runs]

    def minutes_of(who: str, number: int) -> None:
        """It has run so many, from its first to now."""
        for _ in range(number + 1):  # each may take a minute
            with suppress(AssertionError):
                waited(who, lambda: sum(name == who for name, _ in served()) >= number)
                return
        pytest.fail(f"{who} has not run {number} of {served()}")

    machine.write("/etc/cronpoll/tasks.toml", DAEMON)
    machine.run(
        *("systemd-run", "--unit=takeover", "--service-type=notify", "--setenv=TZ=UTC"),
        *("cronpolld", "--config", "/etc/cronpoll/tasks.toml", "--state-dir", "/root/state"),
    )
    machine.run("systemctl", "start", "cron.service")
    job = f"echo ${{CRONPOLL_RUN_ID:-cron}} $(date +\\%s) >> {SERVED}"
    assert accepted(machine, f"* * * * * {job}\n")
    minutes_of("cron", 1)
    assert "lines taken over" in cronpoll("takeover", "--apply")
    taken_at = len(served())
    minutes_of("daemon", 2)
    cronpoll("takeover", "--undo")
    given_at = len(served())
    waited("cron again", lambda: len(served()) > given_at)
    machine.run("crontab", "-r")
    machine.run("systemctl", "stop", "takeover.service")
    who = [name for name, _ in served()]
    minutes = [minute for _, minute in served()]
    assert minutes == list(range(minutes[0], minutes[0] + len(minutes)))
    assert who == ["cron"] * taken_at + ["daemon"] * (given_at - taken_at) + ["cron"]
