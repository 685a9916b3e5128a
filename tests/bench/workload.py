"""What the cases are fed with: expressions, zones, start instants, task lists. Seeded, so every run
measures the same.

MIX (initialize, memory): 1,440 distinct expressions, as a well-filled crontab has them: 45 % daily,
20 % on weekdays, 15 % weekly, 10 % monthly, 10 % several times a day. QUIET is the same without
anything between 00:00 and 03:59, so that polls at night find nothing due. NOON are distinct
expressions that agree on one thing: 12:00 UTC every day. Tasks take their expressions from such a
list in turn.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from cronpoll.core.cron import parse

DISTINCT = 1_440
DELAY = timedelta(minutes=5)
NOON_AT = datetime(2026, 1, 14, 12, tzinfo=UTC)
BEFORE_NOON = NOON_AT - timedelta(seconds=30)
NIGHT = datetime(2026, 1, 14, 0, 0, tzinfo=UTC)

DENSE = (
    "* * * * *",
    "0,5,10,15,20,25,30,35,40,45,50,55 * * * *",
    "0,15,30,45 8-18 * * *",
    "* 9-17 * * 1-5",
)
ORDINARY = (
    "30 4 * * *",
    "0 9 * * 1-5",
    "15 2 1 * *",
    "0 22 * * 0",
    "5 0 1,15 * *",
    "45 6,18 * * *",
)
SPARSE = ("0 0 29 2 *", "0 12 13 * 5")

DST_ZONES = tuple(
    ZoneInfo(key) for key in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
)


def instants(number: int, seed: int = 1) -> list[datetime]:
    """Start instants spread over four years, to the second."""
    random = Random(seed)
    first = datetime(2024, 1, 1, tzinfo=UTC)
    return [first + timedelta(seconds=random.randrange(4 * 365 * 86_400)) for _ in range(number)]


def mix(first_hour: int = 0, seed: int = 2) -> list[str]:
    random = Random(seed)
    found: dict[str, None] = {}
    while len(found) < DISTINCT:
        minute, hour = random.randrange(60), random.randrange(first_hour, 24)
        kind = random.random()
        if kind < 0.45:
            text = f"{minute} {hour} * * *"
        elif kind < 0.65:
            text = f"{minute} {hour} * * 1-5"
        elif kind < 0.80:
            text = f"{minute} {hour} * * {random.randrange(7)}"
        elif kind < 0.90:
            text = f"{minute} {hour} {random.randrange(1, 29)} * *"
        else:
            hours = sorted(random.sample(range(first_hour, 24), random.randrange(2, 7)))
            text = f"{minute} {','.join(map(str, hours))} * * *"
        found[text] = None
    return list(found)


def noon() -> list[str]:
    """Distinct expressions, all due at NOON_AT and none in the minute before."""
    texts = []
    for other in range(24):
        hours = ",".join(map(str, sorted({12, other})))
        texts += [f"{'0' if minute == 0 else f'0,{minute}'} {hours} * * *" for minute in range(60)]
    return [text for text in dict.fromkeys(texts) if not parse(text).matches(BEFORE_NOON)]


def agreeing(minute: datetime) -> list[str]:
    """Distinct expressions that agree on one thing: this minute, in UTC, and none of the ten before
    it."""
    texts = []
    for hour in range(24):
        hours = ",".join(map(str, sorted({minute.hour, hour})))
        for other in range(minute.minute, minute.minute + 50):
            minutes = ",".join(map(str, sorted({minute.minute, other % 60})))
            texts.append(f"{minutes} {hours} * * *")
    before = [minute - timedelta(minutes=i) for i in range(1, 11)]
    found = [text for text in dict.fromkeys(texts) if not any(map(parse(text).matches, before))]
    assert all(parse(text).matches(minute) for text in found)
    return found


def elsewhen(now: datetime) -> list[str]:
    """Every minute of the day in UTC but those of this hour and its two neighbours."""
    near = {(now.hour + shift) % 24 for shift in (-1, 0, 1)}
    return [
        f"{minute} {hour} * * *" for hour in range(24) if hour not in near for minute in range(60)
    ]


def all_distinct(number: int) -> list[str]:
    """No two alike, at most 44,640."""
    return [f"{i % 60} {i // 60 % 24} {i // 1440 % 31 + 1} * *" for i in range(number)]


def common_texts(number: int, seed: int = 3) -> list[str]:
    """Distinct expressions whose fields recur, as they do in life: there are only so many ways to
    write an hour."""
    random = Random(seed)
    days, weekdays = (
        ["*"] * 6 + [str(day) for day in range(1, 29)],
        ["*"] * 4 + ["0", "1-5", "6", "1,3,5"],
    )
    found: dict[str, None] = {}
    while len(found) < number:
        minute = random.choice(
            ("0", "0,30", "0,15,30,45", str(random.randrange(60)), str(random.randrange(60)))
        )
        hour = random.choice(("*", "8-18", str(random.randrange(24)), str(random.randrange(24))))
        found[f"{minute} {hour} {random.choice(days)} * {random.choice(weekdays)}"] = None
    return list(found)


def strange_texts(number: int, seed: int = 4) -> list[str]:
    """Distinct expressions whose minute, hour and day fields hardly ever recur: next to nothing a
    cache could know."""
    random = Random(seed)

    def some(values: range) -> str:
        return ",".join(map(str, sorted(random.sample(values, random.randrange(3, 7)))))

    found: dict[str, None] = {}
    while len(found) < number:
        day = random.choice(("*", some(range(1, 29))))
        weekday = random.choice(("*", random.choice(("1-5", "0,6", "1,3,5"))))
        found[f"{some(range(60))} {some(range(24))} {day} {random.randrange(1, 13)} {weekday}"] = (
            None
        )
    return list(found)


def names(number: int) -> list[str]:
    return [f"task-{i:07d}" for i in range(number)]


def registrations(number: int, expressions: list[str], callback) -> list[tuple]:
    kinds = len(expressions)
    return [(name, expressions[i % kinds], callback, DELAY) for i, name in enumerate(names(number))]
