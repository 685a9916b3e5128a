"""The trace context of a run."""

from __future__ import annotations

import re

import pytest

from cronpoll.core.tracing import traceparent

OUTER = f"00-{'a' * 32}-{'b' * 16}-"


@pytest.mark.parametrize(
    ("ours", "flags"),
    [
        ("", "01"),
        (OUTER + "00", "00"),
        (OUTER + "03", "03"),
        (f"cc-{'a' * 32}-{'b' * 16}-00-what-comes-later", "00"),
        (f"ff-{'a' * 32}-{'b' * 16}-00", "01"),
        (f"00-{'0' * 32}-{'b' * 16}-00", "01"),
        (f"00-{'a' * 32}-{'0' * 16}-00", "01"),
        (OUTER + "0", "01"),
        (OUTER + "000", "01"),
        (OUTER + "0X", "01"),
    ],
)
def test_flags_are_those_of_the_daemon_if_it_has_a_valid_context(ours: str, flags: str) -> None:
    found = traceparent("a3f0-17", ours)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", found)
    assert found[-2:] == flags
    assert "aaaa" not in found


def test_identifiers_follow_from_the_run() -> None:
    assert traceparent("r-1") == "00-a5fa777a3dc67268caea6eea038ba141-77e360dba84e1db4-01"
    assert traceparent("r-1")[3:52] != traceparent("r-2")[3:52]
