"""The same soak with the state on a small disk that is full every now and then: nothing starts that
is not written down."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tools.soak import LIVES, Soak, judge, needs_faketime, soaking

pytestmark = pytest.mark.soak

PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for the history of all lives and not much more."""
    place = tmp_path / "disk"
    place.mkdir()
    size = f"size={2 + LIVES // 5}m,mode=700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", place],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


class Filler:
    """A file that takes what room there is, but for some pages."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self, pages_left: int = 0) -> None:
        with self._path.open("ab", buffering=0) as file, suppress(OSError):
            while file.write(bytes(64 * PAGE)) == 64 * PAGE:
                pass
        size = self._path.stat().st_size // PAGE
        os.truncate(self._path, max(size - pages_left, 0) * PAGE)

    def free(self) -> None:
        self._path.unlink(missing_ok=True)


@needs_faketime
@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")
def test_killed_on_a_disk_that_is_full_at_times_it_starts_nothing_that_is_not_durable(
    tmp_path: Path, disk: Path
) -> None:
    filler = Filler(disk)
    with soaking(tmp_path, __file__, state=disk / "state") as soak:
        soak.excused += ("No space left",)
        soak.loses_output = True
        soak.trouble = lambda: _fill_or_free(soak, filler)
        _one_illness_from_beginning_to_end(soak, filler)
        for _ in range(LIVES):
            if soak.random.random() < 0.8:
                filler.free()
            soak.live()
        filler.free()
        soak.come_to_rest()
        judge(soak)


def _fill_or_free(soak: Soak, filler: Filler) -> bool:
    filler.free()
    match soak.random.choice(["free", "full", "full", "nearly", "nearly"]):
        case "full":
            filler.fill()
        case "nearly":
            filler.fill(soak.random.randrange(1, 5))
    return False


def _one_illness_from_beginning_to_end(soak: Soak, filler: Filler) -> None:
    """Before chance has a say: one life in which the disk fills up, has room again, and fills up
    until death."""
    soak.start()
    soak.wait_for("DaemonStarted")
    filler.fill()
    soak.wait_for("StoreDegraded")
    filler.free()
    soak.wait_for("StoreRecovered")
    filler.fill()
    soak.wait_for("StoreDegraded", count=2)
    soak.die()
    filler.free()
