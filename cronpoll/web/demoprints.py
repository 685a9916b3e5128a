"""What the tasks of the demo print, and what they use: invented, and always the same. Of the month
the last days are kept; of a run in the present each line comes at its time."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from cronpoll.core.model import ProcessExit
from cronpoll.output.keeper import Keeper
from cronpoll.output.names import Place, Stream, label_of
from cronpoll.output.records import Block, Header, Outcome
from cronpoll.runtime.clock import Clock
from cronpoll.runtime.runs import Run

KEPT_SINCE: Final = "2026-10-27"

_LINES: Final = {
    "nightly-backup": (
        "backup 2.8.1: database shop on db1, target s3://fennel-backup/db1",
        "lock /run/backup/shop.lock taken",
        "wal position 4A/7C1183F0, 214 tables, about 38.2 GB",
        "  public.accounts          41,208 rows     0.9 s",
        "  public.order_lines   11,902,335 rows    97.5 s",
        "  public.orders         3,407,981 rows    42.5 s",
        "  public.payments       3,391,226 rows    42.1 s",
        "uploaded 9.7 GB in 4 parts",
        "lock released",
    ),
    "offsite-sync": ("12,204 files to look at", "sent 318 files, 2.1 GB", "nothing is missing"),
    "backup-verify": ("restoring shop.dump into a scratch database", "214 tables, checksums agree"),
    "wal-archive": ("16 segments archived to s3://fennel-backup/wal",),
    "payment-status": ("gateway: 23 payments asked for, 2 have changed",),
    "crm-sync": (
        "crm: 4 pages of contacts",
        "page 1 of 4: 250 contacts",
        "page 2 of 4: 250 contacts",
        "page 3 of 4: 250 contacts",
        "page 4 of 4: 118 contacts",
        "crm: 31 contacts changed",
    ),
    "warehouse-sync": ("stock of 3 places", "Bremen: 8,120 articles", "Gera: 2,004 articles",
                       "warning: 3 articles of Gera have no weight", "Ulm: 977 articles"),
    "stock-feed": ("feed: 1,204 offers, 17 have changed",),
    "search-reindex": ("index shop_b: 88,410 documents", "alias shop now points to shop_b"),
    "cache-warm-home": ("12 pages, slowest /start 0.8 s",),
    "media-thumbs": ("41 pictures, 246 thumbnails",),
    "log-ship": ("shipped 6.1 MB to logs1",),
}  # fmt: skip
_MEGABYTES: Final = {"nightly-backup": 405, "search-reindex": 610, "warehouse-sync": 180}
_BAD: Final = ("error", "giving up", "warning", "differs", "HTTP 5", "503", "exceeded", "could not")


class Printed(NamedTuple):
    """A line, and at which share of the run's time it comes."""

    share: float
    stream: Stream
    text: str


def lines_of(name: str, failed: tuple[str, ...] | None) -> list[Printed]:
    """What a run prints; `failed`: what one prints that fails."""
    texts = _LINES.get(name, ("done",)) if failed is None else failed
    return [
        Printed(
            (number + 0.4) / len(texts),
            "stderr" if any(word in text for word in _BAD) else "stdout",
            text,
        )
        for number, text in enumerate(texts)
    ]


def used(name: str, seconds: float, code: int) -> ProcessExit:
    peak = _MEGABYTES.get(name, 60) * (1 + seconds % 0.1) * 1e6
    return ProcessExit(code=code, cpu_ms=round(seconds * 430, 3), peak_memory_bytes=int(peak))


class Printer(Protocol):
    """Takes the time of a run, and what it prints."""

    async def during(self, run: Run, seconds: float, lines: list[Printed], *, failed: bool) -> None:
        """Come back after so long."""


class Later:
    """In the month: what runs have printed is written when the month is over."""

    def __init__(self) -> None:
        self._runs: list[tuple[Header, list[Block]]] = []

    async def during(self, run: Run, seconds: float, lines: list[Printed], *, failed: bool) -> None:
        await asyncio.sleep(seconds)
        started_at = label_of(run.task_name, run.started_at, run.run_id).started_at
        if started_at < datetime.fromisoformat(f"{KEPT_SINCE}T00:00:00Z"):
            return
        offsets: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        blocks = []
        for line in lines:
            data = f"{line.text}\n".encode()
            blocks.append(
                Block(line.stream, int(line.share * seconds * 1_000), offsets[line.stream], data)
            )
            offsets[line.stream] += len(data)
        outcome: Outcome = "failed" if failed else "ok"
        header = Header(run.task_name, run.run_id, started_at, outcome, started_at)
        self._runs.append((header, blocks))

    def write(self, state_directory: str) -> None:
        place = Place(state_directory)
        os.makedirs(place.live, 0o700)
        for header, blocks in self._runs:
            stem = label_of(header.task, header.started_at, header.run_id).stem
            with open(place.beside(stem, header.outcome or "ok"), "xb") as out:
                out.write(b"".join([header.line(), *(block.encoded() for block in blocks)]))


class AtOnce:
    """In the present: each line at its time."""

    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock

    async def during(self, run: Run, seconds: float, lines: list[Printed], *, failed: bool) -> None:
        capture = self._keeper.capture(run.task_name, run.run_id, run.started_at, lambda _: None)
        began, well = self._clock.monotonic(), False
        try:
            for line in lines:
                await asyncio.sleep(began + line.share * seconds - self._clock.monotonic())
                capture.write(line.stream, f"{line.text}\n")
            await asyncio.sleep(began + seconds - self._clock.monotonic())
            well = not failed
        finally:
            capture.close(failed=not well)
