"""How the page writes times, lengths and numbers: one form for each, in the zone of the host."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

from cronpoll.core.text import utc_text
from cronpoll.web.html import Html, esc, tag

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIX_DAYS: Final = timedelta(days=6)


def length(seconds: float) -> str:
    """A length in its two largest units, as in a registry file: 2.5s, 5m 45s, 1h 55m, 4d."""
    seconds = abs(seconds)
    if 0 < seconds < 0.1:
        return f"{max(seconds * 1_000, 1):.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = int(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        number, whole = divmod(whole, size)
        if number or parts:
            parts.append(f"{number}{unit}" if not parts else f"{number:02}{unit}")
    shown = [part for part in parts[:2] if part.strip("0dhms")] if len(parts) > 1 else parts
    return " ".join(shown)


def size(number: float) -> str:
    """So many bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1_000 or unit == "GB":
            break
        number /= 1_000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"


class Face:
    """The clock on the wall of the page: what time it is, and in which zone times are written."""

    def __init__(self, now: datetime, zone: tzinfo, zone_name: str) -> None:
        self.now = now
        self.zone = zone
        self.zone_name = zone_name
        self._today = now.astimezone(zone).date()

    def local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone)

    def date(self, moment: datetime, *, weekday: bool = True) -> str:
        there = self.local(moment)
        year = "" if there.year == self._today.year else f" {there.year}"
        return f"{there:%a} {there.day} {there:%b}{year}" if weekday else (
            f"{there.day} {there:%b}{year}"
        )  # fmt: skip

    def day(self, moment: datetime) -> str:
        """What stands before a time that is not of today: a weekday, or the date if it is over six
        days away."""
        there = self.local(moment)
        if there.date() == self._today:
            return ""
        if abs(moment - self.now) < _SIX_DAYS:
            return f"{there:%a}"
        return self.date(moment, weekday=False)

    def offset(self, moment: datetime) -> str:
        """The offset, where the wall clock shows this time twice."""
        there = self.local(moment)
        twin = there.replace(fold=1 - there.fold)
        if twin.utcoffset() == there.utcoffset() or there.replace(tzinfo=None) != (
            twin.astimezone(self.zone).replace(tzinfo=None)
        ):
            return ""
        text = f"{there:%z}"
        return f"{text[:3]}:{text[3:5]}"

    def plain(self, moment: datetime, *, seconds: bool = True) -> str:
        """The same as `time` without markup, for labels."""
        there, day = self.local(moment), self.day(moment)
        text = f"{there:%H:%M:%S}" if seconds else f"{there:%H:%M}"
        return f"{day} {text}{self.offset(moment)}".strip()

    def time(self, moment: datetime | None, *, seconds: bool = True) -> Html:
        """HH:MM:SS, the weekday before it if it is not today. Seconds of 00 are quiet."""
        if moment is None:
            return tag("span", "never", class_="q")
        there, day = self.local(moment), self.day(moment)
        tail = f":{there:%S}" if seconds else ""
        return tag(
            "time",
            tag("span", f"{day} ", class_="q") if day else None,
            f"{there:%H:%M}",
            tag("span", tail, class_="q") if tail == ":00" else tail,
            tag("span", offset, class_="q") if (offset := self.offset(moment)) else None,
            datetime=utc_text(moment),
            class_="t",
        )

    def clock_words(self, moment: datetime) -> str:
        """Hour and minute alone, without markup."""
        return f"{self.local(moment):%H:%M}"

    def clock(self, moment: datetime) -> Html:
        """Hour, minute and second alone."""
        return tag("time", f"{self.local(moment):%H:%M:%S}", datetime=utc_text(moment), class_="t")

    def until(self, moment: datetime, before: str = "") -> Html:
        """A countdown, which goes on in the browser."""
        text = length((moment - self.now).total_seconds())
        words = f"{before} " if before else ""
        return Html(
            f'{esc(words)}<span class="n" data-until="{moment.timestamp():.0f}">{esc(text)}</span>'
        )

    def since(self, moment: datetime, before: str = "", after: str = "") -> Html:
        """The time that has passed, which goes on in the browser."""
        text = length((self.now - moment).total_seconds())
        words = f"{before} " if before else ""
        return Html(
            f'{esc(words)}<span class="n" data-since="{moment.timestamp():.0f}">{esc(text)}</span>'
            f"{esc(after)}"
        )
