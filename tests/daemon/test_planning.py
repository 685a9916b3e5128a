"""What `plan` says of an edit that the journal knows a digest of."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cronpoll.config.bundle import LAST_GOOD, gather, packed
from cronpoll.config.check import Rules, check
from cronpoll.core.view import Change
from cronpoll.daemon.planning import with_keys

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = 'include = ["conf.d/*.toml"]\n'
TASK = '[[task]]\nname = "db"\ncron = "0 3 * * *"\ncommand = ["a"]\n'


def test_the_copy_of_what_is_in_force_tells_which_key_differs(tmp_path: Path) -> None:
    state, file, part = tmp_path / "state", tmp_path / "tasks.toml", tmp_path / "conf.d" / "a.toml"
    state.mkdir()
    part.parent.mkdir()
    file.write_text(TEXT)
    part.write_text(TASK)
    changes = [
        Change("changed", "db", "changed: timeout 10m → 20m, what it runs; next run tomorrow"),
        Change("changed", "not in the file", "changed: what it runs"),
    ]
    old = gather(str(file), check_ownership=False)
    part.write_text(TASK.replace('["a"]', '["b"]') + 'env = { A = "hunter2" }\n')
    registry = check(str(file), NOW, UTC, Rules())
    assert with_keys(changes, registry, str(state), NOW) == changes  # there is no copy
    (state / LAST_GOOD).write_bytes(packed(old))
    first, second = with_keys(changes, registry, str(state), NOW)
    assert first.text == (
        "changed: timeout 10m → 20m, command changed, env changed; next run tomorrow"
    )
    assert second == changes[1]
