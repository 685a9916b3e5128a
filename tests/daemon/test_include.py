"""A daemon whose registry has several files: it follows all of them, and keeps all of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.tools.daemons import SELDOM, registry, task
from tests.tools.living import Living

INCLUDE = 'include = ["conf.d/*.toml"]\n'


def one(name: str) -> str:
    return registry(task(name, SELDOM)).partition("[[task]]")[2].join(["[[task]]", ""])


def put(directory: Path, name: str, text: str) -> None:
    """As an editor does."""
    (directory / f".{name}.new").write_text(text)
    os.replace(directory / f".{name}.new", directory / name)


def swapped(directory: Path, number: int, text: str) -> None:
    """As Kubernetes changes a ConfigMap: another directory behind one link."""
    (directory / f"..{number}").mkdir()
    (directory / f"..{number}" / "map.toml").write_text(text)
    (directory / "..next").symlink_to(f"..{number}")
    os.replace(directory / "..next", directory / "..data")


def test_files_come_change_and_go_while_it_runs_and_a_copy_of_all_is_kept(tmp_path: Path) -> None:
    living = Living(tmp_path, INCLUDE + one("main"))
    parts = tmp_path / "conf.d"
    with living:
        living.following()
        mark = len(living.log)
        parts.mkdir()
        put(parts, "a.toml", one("a"))
        living.wait_for("TaskAdded", taskName="a", since=mark)
        accepted = living.wait_for("ConfigAccepted", since=mark)
        assert accepted["changes"] == [f"a: added, {SELDOM}"]
        swapped(parts, 1, one("of a map"))
        (parts / "map.toml").symlink_to("..data/map.toml")
        living.wait_for("TaskAdded", taskName="of a map", since=mark)
        mark = len(living.log)
        swapped(parts, 2, one("of the next map"))
        living.wait_for("TaskAdded", taskName="of the next map", since=mark)
        living.wait_for("TaskOrphaned", taskName="of a map", since=mark)
        mark = len(living.log)
        put(parts, "b.toml", one("a"))  # the name is taken: nothing of it comes into force
        rejected = living.wait_for("ConfigRejected", since=mark)
        assert "conf.d/b.toml" in rejected["problems"][0]
        assert f"already used in {parts}/a.toml, line 2" in rejected["problems"][0]
        mark = len(living.log)
        os.unlink(parts / "b.toml")
        os.unlink(parts / "map.toml")
        living.wait_for("TaskOrphaned", taskName="of the next map", since=mark)
        status = living.command("status", "--config", str(living.config), "--json")
        assert '"a"' in status.stdout
        living.stop()
        shutil.rmtree(parts)
        living.write(INCLUDE + "broken")
        living.up("--last-good")
        accepted = living.wait_for("ConfigAccepted", since=mark + 1)
        assert accepted["tasks"] == 2
        living.stop()
