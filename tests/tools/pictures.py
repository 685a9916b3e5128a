"""The pictures of the README, made anew from the demo: `python -m tests.tools.pictures`.

Needs Chromium and playwright, and looks as intended with the font Inter. `pngquant --force --ext
.png` makes a page a third as large.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

PICTURES: Final = Path(__file__).parent.parent.parent / "packaging" / "pictures"
WIDTH: Final = 114
FLAGS: Final = ["--no-sandbox", "--disable-background-networking", "--no-first-run"]


def terminal(state: str) -> None:
    """`cronpoll status` on the demo."""
    from msgspec.structs import replace
    from rich.console import Console
    from rich.text import Text

    from cronpoll.cli import status
    from cronpoll.store.journal.reading import JournalReader
    from cronpoll.web.demo import DemoClock

    status.SystemClock = DemoClock  # type: ignore[misc]
    report = status._report_or_fail(JournalReader(state), (), failing=False)
    report = replace(report, state_directory="/var/lib/cronpoll")
    text = status._lines(report, WIDTH, colour=True).whole()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text))
        name = str(PICTURES / "terminal.svg")
        console.save_svg(name, title="cronpoll status", unique_id="cronpoll")


def pages(address: str) -> None:
    """The overview of the demo, and its timeline."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        program = shutil.which("chromium")
        browser = tools.chromium.launch(executable_path=program, args=FLAGS)
        for name, path, awaited, scheme, height in (
            # The audit comes last.
            ("page", "", "#health li:nth-child(5)", "light", 900),
            ("timeline", "timeline", ".rows", "dark", 1140),
        ):
            seen = browser.new_page(
                viewport={"width": 1280, "height": height}, color_scheme=scheme, bypass_csp=True
            )
            seen.goto(address + path)
            seen.wait_for_selector(awaited)
            seen.add_style_tag(content="body { font-family: Inter, system-ui, sans-serif }")
            seen.screenshot(path=str(PICTURES / f"{name}.png"))
            seen.close()
        browser.close()


async def main(file: str) -> None:
    from cronpoll.store.journal.reading import JournalReader
    from cronpoll.web import demo, server
    from cronpoll.web.access import Doors, Rules
    from cronpoll.web.app import Settings, Web
    from cronpoll.web.watch import Watch

    clock = demo.DemoClock()
    daemon = demo.DemoDaemon(file, clock)
    await daemon.start()
    state = daemon.state_directory
    watch = Watch(JournalReader(state), clock, lambda: demo.ZONE)
    web = Web(watch, Doors(Rules(anyone_operates=True)), Settings("demo"))
    listening = server.listen_on("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    serving = asyncio.get_running_loop().create_task(server.serve(web.app(), [listening]))
    try:
        await asyncio.to_thread(terminal, state)
        await asyncio.to_thread(partial(pages, address))
    finally:
        serving.cancel()
        await daemon.stop()


if __name__ == "__main__":
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="cronpoll-pictures-") as directory:
        from cronpoll.web.demo import prepare

        asyncio.run(main(prepare(directory)))
