"""Damage with intact records behind it: refused, and the file left untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from cronpoll.core.errors import (
    JournalVersionError,
)
from cronpoll.store.journal import codec
from tests.store.faulty import (
    FIRST,
    SECOND,
    asides,
    assert_refused,
    assert_usable,
    compacted,
    flipped,
    seen,
    small,
    with_data,
)
from tests.store.test_journal_format import opened


def test_one_flipped_bit_before_the_last_batch_is_always_damage_and_the_file_is_left_untouched():
    _, data, starts, _ = small()
    # The very last one is a line feed, before which the intact batch behind it has to be recognised
    # all the same.
    for position in range(starts[0], starts[-1]):
        place = max(start for start in starts if start <= position)
        for bit in range(8):
            assert_refused(with_data(flipped(data, position, bit)), offset=place)


def test_one_flipped_bit_in_the_head_is_always_refused_and_the_file_is_left_untouched():
    _, data, starts, _ = small()
    as_a_newer_version = 0
    for position in range(starts[0]):
        for bit in range(8):
            disk = with_data(flipped(data, position, bit))
            if (codec.read_version(disk.content(FIRST)) or 0) > codec.VERSION:
                as_a_newer_version += 1
                with pytest.raises(JournalVersionError):
                    opened(disk)
                assert disk.content(FIRST) == flipped(data, position, bit)
            else:
                assert_refused(disk, offset=0)
    assert as_a_newer_version == 3  # 3, 5 and 9 are one bit from 1


def test_one_flipped_bit_in_the_last_batch_is_a_torn_end():
    _, data, starts, states = small()
    for position in range(starts[-1], len(data)):
        for bit in range(8):
            bad = flipped(data, position, bit)
            disk = with_data(bad)
            (finding,) = opened(disk).findings
            assert (finding.offset, finding.bytes_cut) == (starts[-1], len(data) - starts[-1])
            assert list(asides(disk).values()) == [bad[starts[-1] :]]
            if bit == position % 8:
                assert_usable(disk, states[-2])


def test_any_flipped_bit_of_a_journal_that_is_only_a_snapshot_is_refused():
    _, data, starts, _ = small()
    alone = data[: starts[1]]
    for position in range(starts[0], len(alone)):
        assert_refused(with_data(flipped(alone, position, position % 8)), offset=starts[0])


def test_a_snapshot_cut_at_any_byte_is_damage_for_it_was_complete_when_it_got_its_name():
    _, data, starts, _ = small()
    for end in range(starts[0], starts[1]):
        assert_refused(with_data(data[:end]), offset=starts[0])


DAMAGE: Final[dict[str, Callable[[bytes, list[int]], tuple[bytes, int]]]] = {
    "a batch is missing": lambda data, at: (data[: at[2]] + data[at[3] :], at[2]),
    "a batch is there twice": lambda data, at: (data[: at[3]] + data[at[2] :], at[3]),
    "two batches are exchanged": lambda data, at: (
        data[: at[1]] + data[at[2] : at[3]] + data[at[1] : at[2]],
        at[1],
    ),
    "zeros in the middle of a batch": lambda data, at: (
        data[: at[3] + 60] + bytes(40) + data[at[3] + 100 :],
        at[3],
    ),
    "zeros over the joint of two batches": lambda data, at: (
        data[: at[2] - 20] + bytes(40) + data[at[2] + 20 :],
        at[1],
    ),
    "a whole batch of zeros": lambda data, at: (
        data[: at[2]] + bytes(at[3] - at[2]) + data[at[3] :],
        at[2],
    ),
    "bytes taken out": lambda data, at: (data[: at[3] + 50] + data[at[3] + 53 :], at[3]),
    "bytes put in": lambda data, at: (data[: at[3] + 50] + b"xyz" + data[at[3] + 50 :], at[3]),
    "line ends of another system": lambda data, at: (
        data[: at[0]] + data[at[0] : at[2]].replace(b"\n", b"\r\n") + data[at[2] :],
        at[0],
    ),
    "a torn batch with whole ones behind it": lambda data, at: (
        data[: at[1] + 70] + b"\n" + data[at[2] :],
        at[1],
    ),
    "the journal appended to itself": lambda data, at: (data + data, len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_with_an_intact_record_behind_it_is_refused(
    damage: Callable[[bytes, list[int]], tuple[bytes, int]],
):
    _, data, starts, _ = small()
    damaged, offset = damage(data, starts)
    assert_refused(with_data(damaged), offset=offset)


def test_a_refusal_lets_go_of_the_directory_and_a_restored_file_is_taken():
    _, data, starts, states = small()
    disk = with_data(flipped(data, starts[2] + 50, 3))
    assert_refused(disk, offset=starts[2])
    disk.replace_content(FIRST, data)
    assert_usable(disk, states[-1])


def test_an_older_segment_under_the_number_of_the_newest_is_refused():
    disk = small().disk
    compacted(disk)
    disk.replace_content(SECOND, disk.content(FIRST))
    assert_refused(disk, offset=0, file=SECOND)


STRANGERS: Final = [
    "0000000001.bak.journal",
    "0000000001-copy.journal",
    "0000000001_1.journal",
    "²²²²²²²²²².journal",
]


@pytest.mark.parametrize("name", STRANGERS)
def test_files_of_others_in_the_directory_are_left_alone(name: str):
    disk, data, _, states = small()
    disk.replace_content(f"/state/{name}", data)
    book, findings, _ = opened(disk)
    assert (seen(book), findings) == (states[-1], [])
    assert disk.content(f"/state/{name}") == data
