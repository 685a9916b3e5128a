"""What a child is given before its program begins: limits, priority, umask, variables; and what is
said if that cannot be done."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cronpoll.config.kinds import Limits
from cronpoll.config.variables import Reference, Variables
from cronpoll.output.keeper import Keeper
from cronpoll.runtime.clock import SystemClock
from cronpoll.runtime.runs import Run, RunFailedError
from cronpoll.runtime.spawning import Starter, Surroundings
from tests.tools.running import needs_nobody

PROBE = """
ulimit -v; ulimit -t; ulimit -Ht; ulimit -n; nice; umask; id -u; id -G
grep -E '^Sig(Ign|Blk)' /proc/self/status | tr '\\t' ' '
cat /proc/self/environ | tr '\\0' '\\n' | grep '^A[ .]B='
"""


async def _nothing() -> None: ...


def started(directory: Path, *words: str, **around: Any) -> list[str]:
    """Start a command, wait for its end. What it wrote to the file `said`."""

    async def go() -> None:
        run = Run("t", "run-1", _nothing, True, datetime.now(UTC), 0.0, lambda _: None)
        surroundings = Surroundings(
            SystemClock(),
            str(directory),
            Keeper(str(directory), SystemClock()),
            around.pop("variables", Variables()),
            str(directory),
            **around,
        )
        begun = await Starter(surroundings).start(run, list(words))
        await asyncio.to_thread(begun.process.wait)

    asyncio.run(go())
    said = directory / "said"
    return said.read_text().splitlines() if said.exists() else []


OF_THE_LIBRARY = 0b11 << 31
"""The two signals that the C library keeps for itself. Its posix_spawn, by which Python 3.13 starts
these tests, leaves them ignored, and lets nobody change that."""


def ignored(line: str) -> str:
    kind, mask = line.split()
    return f"{kind} {int(mask, 16) & ~OF_THE_LIBRARY:016x}" if kind == "SigIgn:" else line


def probed(directory: Path, **around: Any) -> list[str]:
    said = started(directory, "bash", "-c", f"{{ {PROBE} }} > said 2>&1", **around)
    return [ignored(line) if line.startswith("Sig") else line for line in said]


SIGNALS = ["SigBlk: 0000000000000000", "SigIgn: 0000000000000000"]


def test_limits_priority_and_umask_hold_for_the_program(tmp_path: Path) -> None:
    limits = Limits(memory=2 << 30, cpu=600, files=512)
    variables = Variables({"A B": "a name that no shell knows", "A.B": "neither"})
    said = probed(tmp_path, limits=limits, nice=7, umask=0o027, variables=variables)
    groups = " ".join(map(str, dict.fromkeys([os.getegid(), *os.getgroups()])))
    assert said[:6] == [str(2 << 20), "600", "605", "512", "7", "0027"]
    assert (said[6], sorted(said[7].split())) == (str(os.geteuid()), sorted(groups.split()))
    assert said[8:] == [*SIGNALS, "A B=a name that no shell knows", "A.B=neither"]


def test_without_them_nothing_is_set(tmp_path: Path) -> None:
    said = probed(tmp_path)
    assert (said[0], said[5], said[8:]) == ("unlimited", "0022", SIGNALS)


@needs_nobody
def test_limits_and_another_user_go_together(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    said = probed(tmp_path, limits=Limits(files=100), nice=-3, user="nobody")
    assert (said[3], said[4], said[6]) == ("100", "-3", "65534")
    assert said[7].split() == ["65534"]


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        (("no-such-program",), "NotFound", "there is no program 'no-such-program'; PATH is "),
        (("/etc/passwd",), "PermissionError", "cannot be started: Permission denied: /etc/passwd"),
    ],
)
def test_a_program_that_cannot_begin_is_told_as_without_limits(
    tmp_path: Path, words: tuple[str, ...], kind: str, text: str
) -> None:
    for around in ({}, {"limits": Limits(files=100)}):
        with pytest.raises(RunFailedError) as caught:
            started(tmp_path, *words, **around)
        assert (caught.value.kind, str(caught.value)[: len(text)]) == (kind, text)


def test_a_value_that_cannot_be_had_is_a_failed_attempt_and_a_new_one_is_the_next_runs(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    variables = Variables({"PGPASSWORD": Reference("file", str(secret))})
    words = ("sh", "-c", 'printf "%s\\n" "$PGPASSWORD" > said')
    with pytest.raises(RunFailedError) as caught:
        started(tmp_path, *words, variables=variables)
    assert caught.value.kind == "Environment"
    assert (
        str(caught.value)
        == f"cannot be started: env.PGPASSWORD: there is no file {tmp_path}/secret"
    )
    for value in ("one", "two"):
        secret.write_text(value + "\n")
        assert started(tmp_path, *words, variables=variables) == [value]


def test_beyond_its_memory_a_program_is_refused_more(tmp_path: Path) -> None:
    script = "try: bytearray(1 << 30)\nexcept MemoryError: open('said', 'w').write('refused')"
    limits = Limits(memory=256 << 20)
    assert started(tmp_path, "python3", "-c", script, limits=limits) == ["refused"]
