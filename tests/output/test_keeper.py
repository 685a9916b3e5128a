"""The output of real processes: kept in order, bounded while it comes, found again by whoever comes
after a crash."""

from __future__ import annotations

import math
import os
import shutil
import stat
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronpoll.core import events as e
from cronpoll.output import disk
from cronpoll.output.capturing import create
from cronpoll.output.feeding import Feed
from cronpoll.output.limits import Limits
from cronpoll.output.names import STREAMS, Place, Stream
from cronpoll.output.reading import KeptRun, OutputReader, Position
from cronpoll.output.recording import Recording
from cronpoll.output.records import Header
from cronpoll.runtime.clock import SystemClock
from tests.output.keeping import Room, gaps, lines
from tests.tools.living import PATIENCE_SECONDS

PRINTS = [
    pytest.param("echo one", ["o one"], id="a line"),
    pytest.param("echo out; echo err >&2; echo again", ["o out", "e err", "o again"], id="order"),
    pytest.param("printf 'one\\ntwo'", ["o one", "o two"], id="no newline at the end"),
    pytest.param("printf 'dos\\r\\n\\nx\\n'", ["o dos", "o ", "o x"], id="line ends"),
    pytest.param("printf '\\377\\n'", ["o \\xff"], id="what is no UTF-8"),
    pytest.param(
        "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done",
        [f"{stream} {stream}{i}" for i in range(1, 6) for stream in "oe"],
        id="lines in turn",
    ),
]


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.mark.parametrize(("script", "expected"), PRINTS)
def test_what_a_process_prints_is_kept(room: Room, script: str, expected: list[str]) -> None:
    room.run(script)
    room.settle()
    assert room.texts() == expected
    assert room.files() == [".ok"]


def test_the_outcome_is_in_the_file_and_so_is_whose_it_is(room: Room) -> None:
    before = SystemClock().wall()
    room.run("echo no >&2; echo yes; exit 3", "a/../b \0\n\u2028")
    room.settle()
    (run,) = room.reader.runs()
    assert (run.task, run.state) == ("a/../b \0\n\u2028", "failed")
    assert before - timedelta(seconds=1) < run.started_at <= run.ended_at
    assert [item.at >= run.started_at for item in room.reader.lines(run)] == [True, True]
    assert room.reader.last_line(run) == "no"
    assert room.reader.run(run.run_id) == run
    assert room.reader.runs("a") == []


def test_nothing_is_kept_of_a_run_that_printed_nothing(room: Room) -> None:
    assert room.run("true") == ()
    room.settle()
    assert room.reader.runs() == []
    assert room.files() == []


def test_files_are_for_their_owner_alone(room: Room) -> None:
    child, handed = room.start("echo one; read x")
    room.eventually(lambda: room.files() == [".err", ".idx", ".out"], "the index is there")
    for path in [room.directory / "output", *(room.directory / "output").rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    child.kill()
    room.over(child.wait(), handed)
    room.settle()
    (path,) = (room.directory / "output").glob("*.failed")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_written_during_a_look_is_taken_by_the_next(tmp_path: Path) -> None:
    place, now, taken = Place(str(tmp_path)), SystemClock().wall(), []
    os.makedirs(place.live)
    out, err = (create(place.raw("stem", stream)) for stream in ("stdout", "stderr"))

    def take(_: str, data: bytes) -> None:
        taken.append(data)
        if len(taken) == 1:
            os.write(out, b"two\nthree\n")

    feed = Feed("job", "ab12-1", lambda _: None, SystemClock())
    feed.take = take  # type: ignore[method-assign, assignment]
    recording = Recording(place, "stem", Header("job", "ab12-1", now), feed, Limits())
    os.write(out, b"one\n")
    while recording.look([], now):
        pass
    assert b"".join(taken) == b"one\ntwo\nthree\n"
    recording.close()
    os.close(out)
    os.close(err)


def test_what_is_written_in_the_middle_of_a_look_keeps_its_order(tmp_path: Path) -> None:
    place, now, taken = Place(str(tmp_path)), SystemClock().wall(), []
    os.makedirs(place.live)
    files = {stream: create(place.raw("stem", stream)) for stream in STREAMS}
    written: list[Stream] = []

    def write(number: int) -> None:
        for stream in STREAMS:
            os.write(files[stream], f"{stream} {number}\n".encode())
            written.append(stream)

    def came() -> list[Stream]:
        found, written[:] = [*written], []
        return found

    class Meanwhile(Recording):
        def _size_now(self, stream: Stream) -> int:
            if stream == "stderr" and len(taken) == 0:
                taken.append(b"")
                write(2)
            return super()._size_now(stream)

    feed = Feed("job", "ab12-1", lambda _: None, SystemClock())
    feed.take = lambda _, data: taken.append(data)  # type: ignore[method-assign]
    recording = Meanwhile(place, "stem", Header("job", "ab12-1", now), feed, Limits())
    write(1)
    assert recording.look(came(), now, came)
    expected = ["stdout 1", "stderr 1", "stdout 2", "stderr 2"]
    assert b"".join(taken).decode().splitlines() == expected
    recording.close()
    for handle in files.values():
        os.close(handle)


def test_a_run_in_progress_is_followed(room: Room) -> None:
    os.mkfifo(room.directory / "go")
    child, handed = room.start("echo one; printf tw; read x < go; echo o >&2; echo o; exit 1")
    position = Position()
    run = room.last()
    assert run.state == "open"

    def first() -> bool:
        nonlocal position
        progress = room.reader.read_on(run, position)
        assert not progress.over
        position = progress.position
        return [item.text for item in progress.items] == ["one"]

    room.eventually(first, "the first line is there")
    assert room.reader.read_on(run, position).items == ()
    (room.directory / "go").write_text("x")
    room.over(child.wait(), handed)
    room.settle()
    progress = room.reader.read_on(run, position)
    assert progress.over
    assert sorted(item.text for item in progress.items) == ["o", "two"]
    assert room.reader.read_on(run, progress.position).items == ()


# -- bounds ----------------------------------------------------------------------------------------


def test_of_much_the_beginning_and_the_end_are_kept_and_the_gap_is_said(room: Room) -> None:
    room.run("seq 1 100000")
    room.settle()
    items = room.items()
    (gap,) = gaps(items)
    numbers = [int(line.text) for line in lines(items)]
    at = items.index(gap)
    assert numbers == [*range(1, at + 1), *range(numbers[at], 100_001)]
    assert numbers[at] > at + 1
    assert gap.size == sum(len(f"{number}\n") for number in range(at + 1, numbers[at]))
    assert gap.text == f"{gap.size:,} bytes of standard output are not kept here"
    (path,) = (room.directory / "output").glob("*.ok")
    assert 240_000 < path.stat().st_size < 270_000


def test_a_flood_on_one_stream_does_not_push_out_what_the_other_said(room: Room) -> None:
    kept = room.run("echo first >&2; seq 1 200000; echo last >&2; exit 1")
    assert [text for text in kept if not text.isdigit()] == ["first", "last"]
    assert {"200000", "last"} <= set(kept)
    room.settle()
    texts = room.texts()
    assert [text for text in texts if text.startswith("e")] == ["e first", "e last"]


def test_a_flood_costs_a_bounded_disk_while_it_lasts(room: Room) -> None:
    child, handed = room.start("yes | head -c 400000000; touch printed; exec sleep 600")
    room.eventually((room.directory / "printed").exists, "it has printed all of it")
    room.eventually(lambda: room.occupied() < 2_000_000, "the middle was given back")
    child.kill()
    room.over(child.wait(), handed)
    (dropped,) = [event for event in room.events if isinstance(event, e.TaskOutputDropped)]
    said = sum(isinstance(event, e.TaskOutput) for event in room.events)
    assert said + dropped.lines + dropped.unread_bytes / 2 == pytest.approx(200_000_000, rel=1e-6)
    room.settle()
    assert room.occupied() < 300_000
    (gap,) = gaps(room.items())
    assert gap.size + 2 * len(lines(room.items())) == 400_000_000


def test_what_is_over_is_bounded_in_total_and_good_runs_go_first(tmp_path: Path) -> None:
    room = Room(tmp_path, total=40_960)
    now = SystemClock().wall()
    for number in range(30):
        script = f"echo {number}; exit {int(number < 5)}"
        room.run(script, started_at=now - timedelta(hours=30 - number))
    room.settle()
    assert room.occupied() <= 40_960
    kept = [int(room.texts_of(run)[0]) for run in room.reader.runs()]
    assert kept == [0, 1, 2, 3, 4, *range(kept[5], 30)]
    assert len(kept) >= 9


def test_what_is_old_goes_and_failed_runs_stay_longer(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for days in (100, 60, 10):
        for status in (0, 1):
            started_at = SystemClock().wall() - timedelta(days=days)
            room.run(f"echo {days} {status}; exit {status}", started_at=started_at)
    room.settle()
    room.another().begin()
    room.settle()
    kept = [room.texts_of(run)[0] for run in room.reader.runs()]
    assert sorted(kept) == ["10 0", "10 1", "60 1"]


# -- after a crash ---------------------------------------------------------------------------------


def killed_over(room: Room, script: str) -> None:
    """A daemon that dies over a run: its files are there, and nobody follows them."""
    child, _ = room.start(script)
    child.wait()
    room.eventually(lambda: ".idx" in room.files(), "it was followed")
    room.kill()


def test_what_a_killed_daemon_left_is_finished_by_the_next(room: Room) -> None:
    killed_over(room, "echo one; echo two >&2")
    assert room.last().state == "open"
    assert room.texts() == ["o one", "e two"]
    room.another().begin()
    room.settle()
    assert room.files() == [".failed"]
    assert room.texts() == ["o one", "e two"]
    assert room.last().task == "job"


def test_a_process_that_outlives_its_daemon_is_followed_by_the_next(room: Room) -> None:
    os.mkfifo(room.directory / "go")
    child, _ = room.start("echo one; read x < go; echo two")
    room.eventually(lambda: room.events, "it has begun")
    room.kill()
    room.another().begin()
    (room.directory / "go").write_text("x")
    child.wait()
    room.eventually(lambda: room.files() == [".failed"], "it was finished")
    assert room.texts() == ["o one", "o two"]
    assert [event.text for event in room.events if isinstance(event, e.TaskOutput)] == [
        "one",
        "two",
    ]


@pytest.mark.parametrize("open_runs", [(), ("ab12-1",)], ids=["over", "in progress"])
def test_what_is_in_the_log_already_is_not_said_again_after_a_crash(
    room: Room, open_runs: tuple[str, ...]
) -> None:
    room.keeper._pause_until = SystemClock().monotonic() + 3_600  # it looks at the end alone,
    room.keeper._may_finish = lambda _: False  # type: ignore[method-assign]  # and is busy then
    room.run("echo one; echo two >&2")
    room.kill()
    room.keeper.open_runs = open_runs
    room.keeper.begin()
    room.settle()
    said = [event.text for event in room.events if isinstance(event, e.TaskOutput)]
    assert said == ["one", "two"] * (1 + len(open_runs))
    assert room.texts() == ["o one", "e two"]


def test_files_without_an_index_are_finished_with_the_name_that_is_known(room: Room) -> None:
    killed_over(room, "echo one")
    for path in (room.directory / "output").glob("*.idx"):
        path.unlink()
    assert room.reader.runs()[0].task is None
    assert room.texts() == ["o one"]
    (room.directory / "output" / "x.ok.tmp").touch()
    room.another("other", "job").begin()
    room.settle()
    assert room.files() == [".failed"]
    assert room.reader.runs()[0].task == "job"


def test_a_copy_is_read_as_the_original(room: Room, tmp_path: Path) -> None:
    room.run("seq 1 100000", "over")
    room.settle()
    room.another()
    killed_over(room, "seq 1 200000; echo end >&2")
    shutil.copytree(tmp_path / "output", tmp_path / "copy" / "output")
    copy = OutputReader(str(tmp_path / "copy"))
    for task in ("over", "job"):
        run = copy.latest(task)
        assert run is not None
        assert [*copy.lines(run)] == room.items(task)


def test_a_file_in_the_place_of_which_a_link_stands_is_not_followed(room: Room) -> None:
    killed_over(room, "echo one; echo two >&2")
    (out,) = (path for path in room.live() if path.suffix == ".out")
    theirs = room.directory / "theirs"
    theirs.write_text("theirs\n")
    out.unlink()
    out.symlink_to(theirs)
    assert room.texts() == []
    assert list(room.reader.search("theirs")) == []
    room.another().begin()
    room.settle()
    assert room.files() == [".failed"]
    assert room.texts() == ["e two"]
    assert theirs.read_text() == "theirs\n"


def test_what_cannot_be_followed_keeps_nobody_else_from_it(room: Room) -> None:
    children = [room.start(f"echo {number}") for number in range(5)]
    for child, _ in children:
        child.wait()
    room.kill()
    for path in [path for path in room.live() if "-1." in path.name or "-4." in path.name]:
        path.unlink()
        path.mkdir()
    room.another().begin()
    room.settle()
    kept = [room.texts_of(run) for run in room.reader.runs() if run.state == "failed"]
    assert sorted(kept) == [["1"], ["2"], ["4"]]


# -- what else processes do ------------------------------------------------------------------------


def test_what_is_printed_in_the_background_after_the_end_is_kept(room: Room) -> None:
    os.mkfifo(room.directory / "go")
    room.run("(read x < go; echo late) & echo done")
    room.eventually(lambda: room.last().state == "ok", "the run is over")
    (room.directory / "go").write_text("x")
    room.eventually(lambda: room.files() == [".ok"], "nobody writes any more")
    assert room.texts() == ["o done", "o late"]


def test_what_comes_late_is_not_taken_for_output_that_was_emptied(room: Room) -> None:
    for name in ("first", "second"):
        os.mkfifo(room.directory / name)
    child, handed = room.start(
        "echo one; read x < first; echo two; (read x < second; echo late) & exit 0"
    )
    room.eventually(lambda: room.events, "it was looked at")
    (room.directory / "first").write_text("x")
    room.over(child.wait(), handed)
    room.eventually(lambda: room.last().state == "ok", "the run is over")
    (room.directory / "second").write_text("x")
    room.eventually(lambda: room.files() == [".ok"], "nobody writes any more")
    assert room.texts() == ["o one", "o two", "o late"]
    said = [event.text for event in room.events if isinstance(event, e.TaskOutput)]
    assert said == ["one", "two", "late"]


def test_a_process_that_empties_its_output_loses_what_was_there_and_that_is_said(
    room: Room,
) -> None:
    os.mkfifo(room.directory / "go")
    child, handed = room.start("echo one >&2; read x < go; echo two > /dev/stderr; echo three >&2")
    room.eventually(lambda: room.texts() == ["e one"], "it has begun")
    room.eventually(lambda: len(room.events) == 1, "and it was seen")
    (room.directory / "go").write_text("x")
    room.over(child.wait(), handed)
    room.settle()
    said = [event.text for event in room.events if isinstance(event, e.TaskOutput)]
    assert said == ["one", "two", "three"]
    assert room.texts()[-2:] == ["e two", "e three"]
    assert len(gaps(room.items())) == 1


@pytest.mark.parametrize("gone", ["output", "output/live", "output/spare", "what is in it"])
def test_what_is_kept_can_be_removed_to_make_room(room: Room, gone: str) -> None:
    """The daemon need not be started again: it goes on in new directories."""
    os.mkfifo(room.directory / "go")
    room.run("echo before")
    child, handed = room.start("echo one; read x < go; echo two")
    room.eventually(lambda: room.texts() == ["o one"], "it has begun")
    removed = [room.directory / gone]
    if gone == "what is in it":
        removed = list((room.directory / "output").iterdir())
    for path in removed:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert room.run("echo after; exit 1") == ("after",)
    (room.directory / "go").write_text("x")
    room.over(child.wait(), handed)
    assert room.run("echo later") == ("later",)
    room.settle()
    kept = [room.texts_of(run) for run in room.reader.runs()]
    assert [found for found in kept if found in (["after"], ["later"])] == [["after"], ["later"]]
    assert not [event for event in room.events if isinstance(event, e.TaskOutputNotKept)]


@pytest.mark.parametrize("instead", ["another directory", "a file"])
def test_in_what_stands_in_its_place_nothing_is_kept(room: Room, instead: str) -> None:
    room.keeper.begin()
    output = room.directory / "output"
    output.rename(room.directory / "moved")
    if instead == "a file":
        output.write_text("theirs")
    else:
        output.mkdir()
    child, handed = room.start("echo one")
    assert child.wait() == 0
    assert handed.recording is None
    assert output.read_text() == "theirs" if instead == "a file" else not list(output.iterdir())


def test_a_run_starts_although_its_output_cannot_be_kept(room: Room) -> None:
    room.keeper.begin()
    room.keeper.held = lambda: False
    shutil.rmtree(room.directory / "output")
    child, handed = room.start("echo one")
    assert child.wait() == 0
    assert handed.recording is None
    (event,) = room.events
    assert isinstance(event, e.TaskOutputNotKept)
    assert event.reason == "the state directory was removed or replaced"


def test_without_word_from_the_kernel_it_is_looked_now_and_then(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: str) -> None:
        raise OSError(24, "too many")

    monkeypatch.setattr(disk, "Writes", none_left)
    os.mkfifo(room.directory / "go")
    child, handed = room.start("echo one; read x < go; echo two; exit 1")
    room.eventually(lambda: len(room.events) == 1, "the first line was seen")
    (room.directory / "go").write_text("x")
    assert room.over(child.wait(), handed) == ("one", "two")


def test_a_run_that_is_over_between_two_looks_is_found(room: Room) -> None:
    child, handed = room.start("echo one")
    child.wait()

    class Late(OutputReader):
        def _open(self, *arguments: Any) -> KeptRun | None:
            room.over(0, handed)
            room.settle()
            return super()._open(*arguments)

    (run,) = Late(str(room.directory)).runs("job")
    assert run.state == "ok"
    assert room.texts_of(run) == ["one"]


def test_of_much_that_a_callback_prints_at_once_what_comes_after_it_is_kept(room: Room) -> None:
    room.keeper.begin()
    room.keeper._pause_until = SystemClock().monotonic() + 3_600  # it comes faster than is looked
    capture = room.keeper.capture("job", "ab12-9", SystemClock().wall(), room.events.append)
    capture.write("stdout", "x" * 4_999_999 + "\n")
    for number in range(50):
        capture.write("stdout", f"{number}\n")
    capture.close(failed=False)
    room.settle()
    texts = room.texts()
    assert texts[-50:] == [f"o {number}" for number in range(50)]
    assert texts[0] == "o (5,000,000 bytes were dropped here: more than could be written down)"


def test_searching_finds_lines_in_all_runs(room: Room) -> None:
    room.run("echo a needle; echo hay", "one")
    room.run("echo hay; echo needles >&2; exit 1", "two")
    room.settle()
    found = [(hit.run.task, hit.line.stream, hit.line.text) for hit in room.reader.search("needle")]
    assert found == [("one", "stdout", "a needle"), ("two", "stderr", "needles")]
    assert [hit.line.text for hit in room.reader.search("needle", "two")] == ["needles"]


def test_who_writes_is_known(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert not disk.written_by_others(str(path))
    with subprocess.Popen(
        ["sh", "-c", "exec >> file; echo; read x"], cwd=tmp_path, stdin=subprocess.PIPE
    ) as child:
        while not path.stat().st_size:
            pass
        assert disk.written_by_others(str(path))
        child.communicate(b"x\n")
    assert not disk.written_by_others(str(path))


def test_while_the_place_is_not_ours_nothing_there_changes(room: Room) -> None:
    room.run("echo before")
    child, running = room.start("true")
    callback = room.keeper.capture("callback", "ab12-99", SystemClock().wall(), room.events.append)
    asked = threading.Event()

    def held() -> bool:
        asked.set()
        return False

    room.keeper.held = held
    room.keeper._prepared_at = -math.inf  # it was looked at a while ago
    there = {path: path.read_bytes() for path in room.directory.rglob("*") if path.is_file()}
    assert room.over(child.wait(), running) == ()  # it is answered
    callback.write("stdout", "lost\n")
    callback.close(failed=False)
    assert room.begin().recording is None
    room.keeper.relieve().result(PATIENCE_SECONDS)
    assert asked.is_set()
    room.settle()
    assert there == {
        path: path.read_bytes() for path in room.directory.rglob("*") if path.is_file()
    }
    assert len(there) >= 4


# -- files are used again --------------------------------------------------------------------------


def inodes(room: Room) -> set[int]:
    return {path.stat().st_ino for path in room.live()}


def spare(room: Room) -> list[Path]:
    return [*(room.directory / "output" / "spare").iterdir()]


def test_the_files_of_a_run_are_used_again_and_empty(room: Room) -> None:
    child, handed = room.start("echo one; echo two >&2")
    used = inodes(room)
    room.over(child.wait(), handed)
    room.eventually(lambda: len(spare(room)) == 2, "its files were given back")
    assert [path.stat().st_size for path in spare(room)] == [0, 0]
    child, handed = room.start("echo three", "other")
    assert inodes(room) == used
    room.over(child.wait(), handed)
    room.settle()
    assert room.texts("other") == ["o three"]
    assert spare(room) == []  # nothing is left behind


def test_a_file_that_somebody_reads_is_not_used_again(room: Room) -> None:
    child, handed = room.start("echo one")
    (out,) = (path for path in room.live() if path.suffix == ".out")
    with out.open() as reading:
        room.over(child.wait(), handed)
        room.eventually(lambda: spare(room), "the other was given back")
        room.eventually(lambda: room.live() == [], "it was put away")
        room.run("echo two")
        room.run("echo three")
        assert reading.read() == "one\n"
    room.settle()


def test_whoever_opens_a_file_while_it_is_emptied_ends_nobody(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in range(50):
        path.write_text("one\n")
        with subprocess.Popen(["sh", "-c", "while read x < file; do :; done"], cwd=tmp_path) as one:
            while one.poll() is None:
                disk.emptied(str(path))


def test_what_a_crash_left_of_used_files_is_not_taken_for_empty(room: Room) -> None:
    room.keeper.begin()
    room.kill()
    (room.directory / "output" / "spare" / "0").write_text("somebody else's\n")
    room.another().begin()
    room.eventually(lambda: spare(room) == [], "it was removed")
    room.run("echo one")
    room.settle()
    assert room.texts() == ["o one"]
