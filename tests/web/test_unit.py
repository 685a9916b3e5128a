"""The unit of the page: systemd accepts it, it is hardened, and it never takes the daemon's place."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.system.test_systemd import assessed, copied, needs, settings, verified

UNIT = "cronpoll-web.service"


def test_systemd_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    needs("systemd-analyze")
    program = f"ExecStart={shutil.which('true')} "
    unit = copied(
        UNIT, tmp_path, lambda text: text.replace("\nExecStart=/usr/bin/cronpoll ", f"\n{program}")
    )
    result = verified(unit)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_exposure_is_low(tmp_path: Path) -> None:
    needs("systemd-analyze")
    result = assessed(copied(UNIT, tmp_path))
    assert result.returncode == 0, result.stdout


def test_it_is_not_root_and_does_not_need_the_daemon() -> None:
    lines = settings(UNIT)
    assert "User=cronpoll" in lines
    assert not [line for line in lines if line.startswith(("Requires=", "BindsTo=", "PartOf="))]
