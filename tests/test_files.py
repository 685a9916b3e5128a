"""Files, done carefully: what is never replaced, never followed, never half there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cronpoll import files


@pytest.mark.parametrize("one_step", [True, False], ids=["in one step", "by a link"])
def test_a_rename_never_takes_the_place_of_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_step: bool
) -> None:
    if not one_step:

        def cannot(*_: str) -> None:
            raise OSError(errno.EINVAL, "not on this file system")

        monkeypatch.setattr(files, "_renameat2", cannot)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("ours")
    new.write_text("theirs")
    with pytest.raises(FileExistsError):
        files.rename_new(str(old), str(new))
    assert (old.read_text(), new.read_text()) == ("ours", "theirs")
    new.unlink()
    files.rename_new(str(old), str(new))
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert new.read_text() == "ours"
    with pytest.raises(FileNotFoundError):
        files.rename_new(str(old), str(tmp_path / "third"))


def test_a_file_is_replaced_as_a_whole_and_its_name_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        order.append(f"fsync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        real_sync(handle)

    def replace(old: str, new: str) -> None:
        order.append("replace")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    path, elsewhere = tmp_path / "file", tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    path.symlink_to(elsewhere)
    (tmp_path / "file.tmp").symlink_to(elsewhere)  # of a process that died, or of somebody else
    files.replace_file(str(path), b"new")
    assert order == ["fsync file.tmp", "replace", f"fsync {tmp_path.name}"]
    assert (path.read_bytes(), path.is_symlink(), elsewhere.read_text()) == (
        b"new",
        False,
        "untouched",
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_replaced_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        files.replace_file(str(tmp_path / "file"), b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OSError, match="is not a regular file"):
            files.read_file(str(path))


def test_a_write_that_takes_a_part_is_continued() -> None:
    taken: list[bytes] = []

    def write(_: int, data: memoryview) -> int:
        taken.append(bytes(data[:3]))
        return len(taken[-1])

    files.write_all(7, b"12345678", write)
    assert taken == [b"123", b"456", b"78"]


def test_no_file_of_ours_gets_the_number_of_a_closed_standard_stream(tmp_path: Path) -> None:
    """A library that prints would write into it."""
    program = (
        "import os, sys; from cronpoll import files\n"
        "[os.close(number) for number in (0, 1, 2)]\n"
        "handle = files.lock_file(sys.argv[1])\n"
        "sys.exit(handle if handle is not None and os.get_inheritable(handle) is False else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "f")], check=False)
    assert done.returncode > 2
