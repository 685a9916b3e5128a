"""Edited modules, a loop that is blocked, and words to the init system."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.test_events import PROMISED_BY_DAEMON, fits
from tests.tools.daemons import (
    NOTHING,
    SELDOM,
    UNTIL_TOLD,
    WRONG,
    eventually,
    registry,
    shell,
    task,
)
from tests.tools.living import PATIENCE_SECONDS, Living


def test_a_module_edited_since_its_import_is_told_once_for_each_edit(daemon: Living) -> None:
    daemon.module("jobs", NOTHING)
    daemon.module("apart", "def f():\n    pass\n")
    tasks = [task(callback="jobs:nothing"), task("apart", callback="apart:f", isolation="process")]
    daemon.write(registry(*tasks))
    daemon.following().wait_for("TaskRunCompleted", taskName="t")
    daemon.module("apart", "def f():\n    pass\n# edited\n")
    for number in (1, 2):
        daemon.module("jobs", NOTHING + "# edited\n" * number)
        edited = daemon.wait_for("ModuleEdited", count=number)
        assert (edited["module"], edited["file"]) == ("jobs", str(daemon.directory / "jobs.py"))
        assert "restart" in edited["advice"]
    daemon.write(registry(*tasks, task("new")))
    daemon.wait_for("TaskRunCompleted", taskName="new")
    assert len(daemon.events("ModuleEdited")) == 2


class InitSystem:
    """The end of the notification socket on which an init system listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[str] = []
        self._read = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def _listen(self) -> None:
        while message := self._socket.recv(65_536):
            self.heard.append(message.decode())

    def environment(self, **more: str) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": "300000", **more}

    def hear(self, beginning: str) -> str:
        """The next message that begins so."""

        def found() -> str | None:
            while self._read < len(self.heard):
                self._read += 1
                if self.heard[self._read - 1].startswith(beginning):
                    return self.heard[self._read - 1]
            return None

        return str(eventually(found))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._ear.join(PATIENCE_SECONDS)
        self._socket.close()


@pytest.fixture
def init_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InitSystem]:
    system = InitSystem(getattr(request, "param", str(tmp_path / "notify")))
    yield system
    system.close()


def test_the_init_system_hears_how_it_goes(daemon: Living, init_system: InitSystem) -> None:
    daemon.write(registry(task(cron=SELDOM), shell("env", name="environment")))
    daemon.start(env=init_system.environment())
    init_system.hear("READY=1")
    assert [text.partition("=")[0] for text in init_system.heard][:2] == ["STATUS", "READY"]
    init_system.hear("WATCHDOG=1")
    status = init_system.hear("STATUS=")
    assert status.startswith("STATUS=2 tasks, ")
    assert "next run 20" in status
    init_system.hear("WATCHDOG=1")
    init_system.hear("WATCHDOG=1")
    before = time.monotonic_ns() // 1_000
    daemon.wait_for("TaskRunCompleted", taskName="environment")
    assert not [
        event
        for event in daemon.events("TaskOutput")
        if event["text"].startswith(("NOTIFY_", "WATCHDOG_"))
    ]
    daemon.signal(signal.SIGHUP)
    reloading = init_system.hear("RELOADING=1")
    assert (
        before
        <= int(reloading.removeprefix("RELOADING=1\nMONOTONIC_USEC="))
        <= time.monotonic_ns() // 1_000
    )
    init_system.hear("READY=1")
    daemon.write(WRONG)
    init_system.hear("RELOADING=1")
    init_system.hear("READY=1")
    daemon.write(registry(task(cron=SELDOM)))
    init_system.hear("STATUS=1 task, ")
    daemon.signal(signal.SIGTERM)
    init_system.hear("STOPPING=1")
    assert daemon.ended() == 0


def test_signs_of_life_go_on_while_a_stop_waits(daemon: Living, init_system: InitSystem) -> None:
    daemon.write(registry(shell(UNTIL_TOLD)))
    daemon.up(env=init_system.environment()).wait_for("TaskOutput", text="begun")
    daemon.signal(signal.SIGTERM)
    init_system.hear("STOPPING=1")
    init_system.hear("WATCHDOG=1")
    init_system.hear("WATCHDOG=1")
    (daemon.directory / "go").touch()
    assert daemon.ended() == 0


@pytest.mark.parametrize(
    "init_system", [f"@cronpoll-test-{os.getpid()}"], ids=["abstract"], indirect=True
)
def test_the_init_system_may_listen_at_an_abstract_address(
    daemon: Living, init_system: InitSystem
) -> None:
    daemon.write(registry(task()))
    daemon.start(env=init_system.environment())
    init_system.hear("READY=1")
    init_system.hear("WATCHDOG=1")


def test_an_init_system_that_has_stopped_reading_does_not_hold_it_up(
    daemon: Living, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "notify"))
        daemon.write(registry(task(cron=SELDOM)))
        daemon.following(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000"})
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
            another.setblocking(False)
            eventually(lambda: not took(another, str(tmp_path / "notify")))
        daemon.write(registry(task("new")))
        eventually(lambda: daemon.events("TaskRunCompleted", "LoopBlocked"))
        assert not daemon.events("LoopBlocked")
        assert daemon.stop() == 0


def took(sender: socket.socket, address: str) -> bool:
    try:
        sender.sendto(b"x", address)
    except BlockingIOError:
        return False
    return True


def test_an_init_system_that_does_not_listen_is_no_reason_to_fail(daemon: Living) -> None:
    daemon.write(registry(task()))
    daemon.up(env={"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "300000"}).wait_for(
        "TaskRunCompleted"
    )
    assert daemon.stop() == 0


BLOCKS = """\
import os, time

def wait_here(place):
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.05)

async def blocks():
    place = os.path.dirname(__file__)
    open(os.path.join(place, "blocked"), "w").close()
    wait_here(place)
"""


TARGETS = """
[notify.takes-it]
command = ["true"]
[notify.refuses-it]
command = ["false"]
"""


def test_everything_that_a_daemon_tells_and_a_blocked_loop_that_stops_the_signs_of_life(
    daemon: Living, tmp_path: Path, init_system: InitSystem
) -> None:
    # One life for two questions, because a loop counts as blocked only after seconds that have to
    # pass.
    daemon.module("jobs", NOTHING + BLOCKS)
    daemon.write(registry(task("other", SELDOM, callback="jobs:nothing")))
    daemon.following(
        env=init_system.environment(RUNTIME_DIRECTORY="/nowhere")
    )  # no place for a socket: AccessDenied
    daemon.module("jobs", NOTHING + BLOCKS + "# edited\n")
    daemon.wait_for("ModuleEdited")
    daemon.write(WRONG)
    daemon.wait_for("ConfigRejected")
    waits = UNTIL_TOLD.replace("-e go", "-e end")
    fails = task("fails", command=["false"], notify={"to": ["takes-it", "refuses-it"]})
    blocks = task("the one that blocks", callback="jobs:blocks")
    daemon.write(registry(blocks, shell(waits), fails) + TARGETS)
    eventually((tmp_path / "blocked").exists)
    mark = len(init_system.heard)
    blocked = daemon.wait_for("LoopBlocked")
    assert blocked["taskName"] == "the one that blocks"
    assert "jobs.py:" in blocked["where"]
    assert "in wait_here" in blocked["where"]
    assert "WATCHDOG=1" not in init_system.heard[mark + 1 :]  # one may have been on its way
    (tmp_path / "go").touch()
    mark = len(init_system.heard)
    eventually(lambda: "WATCHDOG=1" in init_system.heard[mark:])
    daemon.wait_for("TaskRunCompleted", taskName="the one that blocks")
    daemon.wait_for("TaskOutput", text="begun")
    daemon.wait_for("NoticeTold", target="takes-it")
    daemon.wait_for("NoticeDelayed", target="refuses-it")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for("DaemonStopWaits")
    (tmp_path / "end").touch()
    assert daemon.ended() == 0
    assert len(daemon.events("LoopBlocked")) == 1
    for name, (level, required) in PROMISED_BY_DAEMON.items():
        happened = daemon.events(name)
        assert happened, f"{name} did not happen"
        for event in happened:
            assert event["level"] == level
            assert fits(event["at"], "time")
            for field, expected in required.items():
                assert fits(event[field], expected), f"{name}.{field} = {event[field]!r}"
