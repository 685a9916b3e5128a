"""Kron: from a nominal minute to the second in its window at which a task starts. Pure, and the
same everywhere.

    period      one nominal due minute N; its id is N as RFC 3339 in UTC
    window      [N, N+D], [N-D/2, N+D/2] or [N-D, N], ends floored to whole seconds, inclusive; W
                seconds long
    seed        SHA-256 of identity, period key and salt; its first eight bytes start a SplitMix64
                generator
    draw        u = 53 bits of the generator / 2^53; the distribution maps it to x in [0, 1)
    candidate   window start + min(W, floor(x * (W + 1)))
    chosen      the first of at most 64 candidates that the constraints allow; if none is, the
                period is unschedulable

Nothing here may differ between two machines, two versions of Python or two C libraries, because a
thousand hosts have to agree without talking. So no float chooses: u is an integer, `uniform` and
whole shapes are integer arithmetic, and what needs a logarithm uses `decimal`, whose ln, exp and
sqrt are correctly rounded by specification, at a fixed precision. Floats only save work: see
`distributions`.
"""

# Annotations are values here, not text: msgspec builds its decoders from them, and would compile
# each one at every start.

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from cronpoll.core.allowed import Edges, edges_around, possible
from cronpoll.core.errors import abbreviate
from cronpoll.core.zones import Zone, instant_of, second_of, zone_of

DRAWS: Final = 64
"""Candidates that are tried before a period is given up as unschedulable."""
WINDOW_LIMIT: Final = timedelta(days=7)
"""Longest window: what was settled has to be remembered for as long as a window reaches."""
SHAPE_LIMIT: Final = 100.0
RATE_LIMIT: Final = 1_000.0
"""Beyond these a distribution is a point at the edge of its window, and not what was meant."""
_NUMBER_LENGTH: Final = 400
"""The smallest number that can be written in a file has fewer characters."""
_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
_LANES: Final = 16
_EACH: Final = sum(1 << 128 * lane for lane in range(_LANES))
_LOW: Final = _EACH * _MASK
_STEPS: Final = sum((lane + 1) * _STEP << 128 * lane for lane in range(_LANES))

Mode = Literal["after", "around", "before"]
Shape = Literal["uniform", "skewEarly", "skewLate", "normal", "exponential"]
Strategy = Literal["stable", "daily", "weekly"]
Middle = Literal["start", "mid", "nominal", "end"]
Direction = Literal["early", "late"]
_OfClock = Annotated[int, msgspec.Meta(ge=0, le=1_439)]
"""A number in a clause; none is larger than the last minute of a day."""


class Window(msgspec.Struct, frozen=True, rename="camel"):
    mode: Mode
    duration_ms: Annotated[int, msgspec.Meta(ge=0, le=604_800_000)]  # WINDOW_LIMIT

    def around(self, nominal: int) -> tuple[int, int]:
        """First and last second for a nominal second since 1970."""
        if self.mode == "after":
            return nominal, nominal + self.duration_ms // 1_000
        if self.mode == "before":
            return nominal - -(-self.duration_ms // 1_000), nominal
        return (2_000 * nominal - self.duration_ms) // 2_000, (
            2_000 * nominal + self.duration_ms
        ) // 2_000


class Distribution(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the starts fall in the window. Numbers are written as text, exactly as they were
    given."""

    name: Shape = "uniform"
    shape: str = "2"
    mu: Middle | None = None
    sigma_ms: Annotated[int, msgspec.Meta(ge=0, le=315_360_000_000)] | None = None
    rate: str = "1"
    direction: Direction = "early"

    def problem(self) -> str | None:
        """Why its numbers are none that can be computed with, or None."""
        for number, most in ((self.shape, SHAPE_LIMIT), (self.rate, RATE_LIMIT)):
            try:
                fits = 0 < float(number) <= most and len(number) <= _NUMBER_LENGTH
            except ValueError:
                fits = False
            if not fits:
                return (
                    f"expected a number above 0 and up to {most:g}, not {abbreviate(number, 40)!r}"
                )
        return None


class Seed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    strategy: Strategy = "stable"
    salt: str = ""


class Constraints(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Clauses on the wall clock of the zone. Within a clause any value suffices; an empty one is no
    clause."""

    hours: tuple[_OfClock, ...] = ()
    dow: tuple[_OfClock, ...] = ()
    dom: tuple[_OfClock, ...] = ()
    months: tuple[_OfClock, ...] = ()
    between: tuple[tuple[_OfClock, _OfClock], ...] = ()
    """Minutes of the day, both ends included; the first may be later than the second, over
    midnight."""
    dates: tuple[tuple[date, date], ...] = ()

    def verdicts(self, wall: datetime) -> Iterator[tuple[str, bool]]:
        """Each clause that is there, and whether the wall time satisfies it."""
        if self.hours:
            yield "hours", wall.hour in self.hours
        if self.dow:
            yield "dow", (wall.weekday() + 1) % 7 in self.dow
        if self.dom:
            yield "dom", wall.day in self.dom
        if self.months:
            yield "months", wall.month in self.months
        if self.between:
            minute = wall.hour * 60 + wall.minute
            yield "between", any(_between(minute, first, last) for first, last in self.between)
        if self.dates:
            yield "dates", any(first <= wall.date() <= last for first, last in self.dates)


def _between(minute: int, first: int, last: int) -> bool:
    return first <= minute <= last if first <= last else minute >= first or minute <= last


class Spread(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, cache_hash=True):
    """Everything about a task that decides where in its periods it starts."""

    window: Window | None = None
    distribution: Distribution = Distribution()
    seed: Seed = Seed()
    only: Constraints | None = None
    avoid: Constraints | None = None


class Draw(NamedTuple):
    """One candidate and what became of it."""

    number: int
    bits: int
    candidate: datetime
    refused: str | None


class Closed(NamedTuple):
    """A period whose window has closed without an allowed time."""

    period: datetime
    window_end: datetime


class Choice(NamedTuple):
    """What is known about one period. `chosen_at` is None if it is unschedulable; then `reason`
    says why."""

    period_id: str
    period: datetime
    window_start: datetime
    window_end: datetime
    period_key: str
    seed_hash: str
    chosen_at: datetime | None
    reason: str | None
    draws: int

    @property
    def settles_at(self) -> datetime:
        """When the period can be handled: at its chosen time, or at the end of its window if it has
        none."""
        return self.chosen_at or self.window_end


def choose(identity: str, spread: Spread, zone: tzinfo, nominal: datetime) -> Choice:
    """The choice for the period of `nominal`, an instant in UTC on a whole minute."""
    second, stretches = second_of(nominal), zone_of(zone)
    start, end = (second, second) if spread.window is None else spread.window.around(second)
    key = _period_key(spread.seed.strategy, nominal, zone)
    digest = _seeded(identity, key, spread.seed.salt)
    state = int.from_bytes(digest[:8], "big")
    number, chosen = _first_allowed(state, spread, stretches, second, start, end)
    reason: str | None = None
    if chosen is None:
        if start == end:
            reason = f"its only time is refused: {refusal(nominal, spread, zone)}"
        elif number == 0:
            refused = refusal(instant_of(start), spread, zone)
            reason = f"no time of its window is allowed: {refused}"
        else:
            bits = _mixed((state + number * _STEP) & _MASK)
            last = start + offsets(spread, end - start, second - start)(bits)
            refused = refusal(instant_of(last), spread, zone)
            reason = f"none of {number} candidates is allowed; the last was refused: {refused}"
    return Choice(
        _period_id(nominal),
        nominal,
        instant_of(start),
        instant_of(end),
        key,
        digest.hex(),
        None if chosen is None else instant_of(chosen),
        reason,
        number,
    )


def chosen_second(identity: str, spread: Spread, zone: Zone, second: int) -> int | None:
    """The chosen second alone, for the period of a nominal second since 1970: what a search asks
    for thousands of periods."""
    start, end = (second, second) if spread.window is None else spread.window.around(second)
    state = 0
    if start != end:
        key = _period_key(spread.seed.strategy, instant_of(second), zone.tzinfo)
        state = int.from_bytes(_seeded(identity, key, spread.seed.salt)[:8], "big")
    return _first_allowed(state, spread, zone, second, start, end)[1]


def _first_allowed(
    state: int, spread: Spread, zone: Zone, second: int, start: int, end: int
) -> tuple[int, int | None]:
    """How many candidates were drawn, and the last of them if it is allowed."""
    constrained = spread.only is not None or spread.avoid is not None
    if start == end:
        return 0, second if not constrained or possible(spread, zone, start, end) else None
    offset = offsets(spread, end - start, second - start)
    if not constrained:
        return 1, start + offset(_mixed((state + _STEP) & _MASK))
    edges = edges_around(spread, zone, start, end)
    place = bisect(edges, start)
    if place % 2 == 0 and (place == len(edges) or edges[place] > end):
        return 0, None
    candidate = start + offset(_mixed((state + _STEP) & _MASK))
    if bisect(edges, candidate) % 2:
        return 1, candidate
    hopeful = _hopeful(edges, start, end, _cells(spread, end - start, second - start))
    for before in range(0, DRAWS, _LANES):
        drawn = _mixed_lanes(state + before * _STEP)
        cells = drawn[7::16].translate(hopeful)
        lane = cells.find(1)
        while lane >= 0:
            bits = int.from_bytes(drawn[lane * 16 : lane * 16 + 8], "little") >> 11
            candidate = start + offset(bits)
            if bisect(edges, candidate) % 2:
                return before + lane + 1, candidate
            lane = cells.find(1, lane + 1)
    return DRAWS, None


# Most candidates of a window that is mostly refused are refused. So sixteen are drawn at a time, as
# the lanes of one large integer, and of each only the highest eight bits are looked at. These name
# one of 256 cells, and a cell that holds no allowed second holds no allowed candidate.


def _mixed_lanes(state: int) -> bytes:
    """SplitMix64's next outputs after a state: 16 bytes each, the lower 8 of them the output."""
    mixed = ((state & _MASK) * _EACH + _STEPS) & _LOW
    mixed = ((mixed ^ (mixed >> 30 & _LOW)) * 0xBF58476D1CE4E5B9) & _LOW
    mixed = ((mixed ^ (mixed >> 27 & _LOW)) * 0x94D049BB133111EB) & _LOW
    return (mixed ^ (mixed >> 31 & _LOW)).to_bytes(_LANES * 16, "little")


class _Cells(NamedTuple):
    """For each cell, the first and the last second of a window that its bits can mean; one more on
    either side, lest the last digit of a distribution matters. In order of seconds: `falling` if
    the last cell comes first then."""

    firsts: list[int]
    lasts: list[int]
    falling: bool


@lru_cache(maxsize=1_024)
def _cells(spread: Spread, length: int, nominal: int) -> _Cells:
    offset = offsets(spread, length, nominal)
    ends = [sorted((offset(cell << 45), offset((cell + 1 << 45) - 1))) for cell in range(256)]
    falling = ends[0] > ends[-1]
    if falling:
        ends.reverse()
    return _Cells([first - 1 for first, _ in ends], [last + 1 for _, last in ends], falling)


def _hopeful(edges: Edges, start: int, end: int, of_window: _Cells) -> bytes:
    """For each cell, 1 if it may hold an allowed second of the window."""
    cells = bytearray(256)
    place = bisect(edges, start) & -2
    while place < len(edges) and edges[place] <= end:
        first = bisect_left(of_window.lasts, edges[place] - start)
        over = bisect_left(of_window.firsts, edges[place + 1] - start)
        cells[first:over] = b"\1" * (over - first)
        place += 2
    if of_window.falling:
        cells.reverse()
    return bytes(cells)


def draws(
    digest: str, spread: Spread, zone: tzinfo, nominal: int, start: int, end: int
) -> Iterator[Draw]:
    """The candidates of a period in order, each with why it is refused, or None; the first that is
    not ends it. For people: what is chosen is decided above."""
    if start == end:
        candidate = instant_of(nominal)
        yield Draw(1, 0, candidate, refusal(candidate, spread, zone))
        return
    state, offset = int(digest[:16], 16), offsets(spread, end - start, nominal - start)
    for number in range(1, DRAWS + 1):
        state = (state + _STEP) & _MASK
        bits = _mixed(state)
        candidate = instant_of(start + offset(bits))
        refused = refusal(candidate, spread, zone)
        yield Draw(number, bits, candidate, refused)
        if refused is None:
            return


def _mixed(state: int) -> int:
    """SplitMix64's output for a state, the upper 53 bits of it."""
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 11


def refusal(candidate: datetime, spread: Spread, zone: tzinfo) -> str | None:
    """Why the constraints refuse a time, or None if they allow it."""
    if spread.only is None and spread.avoid is None:
        return None
    wall = candidate.astimezone(zone)
    for clause, holds in spread.only.verdicts(wall) if spread.only is not None else ():
        if not holds:
            return f"only.{clause} does not hold"
    for clause, holds in spread.avoid.verdicts(wall) if spread.avoid is not None else ():
        if holds:
            return f"avoid.{clause} holds"
    return None


# -- distributions ---------------------------------------------------------------------------------


@lru_cache(maxsize=1_024)
def offsets(spread: Spread, length: int, nominal: int) -> Callable[[int], int]:
    """For a window of `length` seconds, a function from 53 random bits to seconds into it.
    `nominal`: where in the window the nominal time is."""
    if spread.distribution.name == "uniform":
        return lambda bits: bits * (length + 1) >> 53
    # It needs decimal, which a command that only reads must not load.
    from cronpoll.core.distributions import offset_of

    return offset_of(spread.distribution, spread.window, length, nominal)


# -- names -----------------------------------------------------------------------------------------


@cache
def _sha256() -> Callable[[bytes], Any]:
    from hashlib import sha256  # as above

    return sha256


def _seeded(identity: str, key: str, salt: str) -> bytes:
    digest: bytes = _sha256()(f"{identity}\n{key}\n{salt}".encode()).digest()
    return digest


def _period_id(nominal: datetime) -> str:
    return f"{nominal.isoformat()[:19]}Z"


def _period_key(strategy: Strategy, nominal: datetime, zone: tzinfo) -> str:
    if strategy == "stable":
        return _period_id(nominal)
    wall = nominal.astimezone(zone)
    if strategy == "daily":
        return wall.date().isoformat()
    year, week, _ = wall.isocalendar()
    return f"{year:04d}-W{week:02d}"
