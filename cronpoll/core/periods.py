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
sqrt are correctly rounded by specification, at a fixed precision. Of candidates that are refused
nobody needs the exact second. Where an estimate in floats is refused with everything around it, the
candidate is: that saves the decimals of most draws.
"""

# Annotations are values here, not text: msgspec builds its decoders from them, and would compile
# each one at every start.

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, tzinfo
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from cronpoll.core.allowed import possible, refuser
from cronpoll.core.errors import abbreviate
from cronpoll.core.zones import EPOCH

DRAWS: Final = 64
"""Candidates that are tried before a period is given up as unschedulable."""
WINDOW_LIMIT: Final = timedelta(days=7)
"""Longest window: what was settled has to be remembered for as long as a window reaches."""
SHAPE_LIMIT: Final = 100.0
RATE_LIMIT: Final = 1_000.0
"""Beyond these a distribution is a point at the edge of its window, and not what was meant."""
_NUMBER_LENGTH: Final = 400
"""The smallest number that can be written in a file has fewer characters."""
_ESTIMATE_SECONDS: Final = 2
"""An estimate is off by less than a thousandth of a second; so much on either side is looked at."""
_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15

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
    second = int((nominal - EPOCH).total_seconds())
    start, end = (second, second) if spread.window is None else spread.window.around(second)
    period_id = _period_id(nominal)
    key = _period_key(spread.seed.strategy, period_id, nominal, zone)
    from hashlib import sha256  # as above, and once it is loaded this costs nothing

    digest = sha256(f"{identity}\n{key}\n{spread.seed.salt}".encode()).hexdigest()
    if spread.only is None and spread.avoid is None:
        # The first candidate is the one; this is the way that is taken a million times.
        if start == end:
            return Choice(period_id, nominal, nominal, nominal, key, digest, nominal, None, 0)
        bits = _mixed((int(digest[:16], 16) + _STEP) & _MASK)
        chosen = _instant(start + offset(bits, spread, end - start, second - start))
        return Choice(
            period_id, nominal, _instant(start), _instant(end), key, digest, chosen, None, 1
        )
    return _constrained(spread, zone, nominal, second, start, end, period_id, key, digest)


def _constrained(
    spread: Spread,
    zone: tzinfo,
    nominal: datetime,
    second: int,
    start: int,
    end: int,
    period_id: str,
    key: str,
    digest: str,
) -> Choice:
    chosen: datetime | None = None
    reason: str | None = None
    number = 0
    if start != end and not possible(spread, zone, start, end):
        refused = refusal(_instant(start), spread, zone)
        reason = f"no time of its window is allowed: {refused}"
        return Choice(
            period_id, nominal, _instant(start), _instant(end), key, digest, None, reason, 0
        )
    for draw in draws(digest, spread, zone, second, start, end, skip_refused=True):
        number = draw.number
        if draw.refused is None:
            chosen = draw.candidate
            break
        reason = draw.refused
    if chosen is not None:
        reason = None
    elif start == end:
        reason = f"its only time is refused: {reason}"
    else:
        reason = f"none of {number} candidates is allowed; the last was refused: {reason}"
    return Choice(
        period_id,
        nominal,
        _instant(start),
        _instant(end),
        key,
        digest,
        chosen,
        reason,
        number if start != end else 0,
    )


def draws(
    digest: str,
    spread: Spread,
    zone: tzinfo,
    nominal: int,
    start: int,
    end: int,
    *,
    skip_refused: bool = False,
) -> Iterator[Draw]:
    """The candidates of a period in order, each with why it is refused, or None; the first that is
    not ends it. `skip_refused`: of those that are refused only the last of all is needed."""
    length = end - start
    if length == 0:
        candidate = _instant(nominal)
        yield Draw(1, 0, candidate, refusal(candidate, spread, zone))
        return
    state = int(digest[:16], 16)
    constrained = spread.only is not None or spread.avoid is not None
    hopeless = None
    if constrained and skip_refused:
        hopeless = _hopeless(spread, zone, nominal - start, start, end)
    for number in range(1, DRAWS + 1):
        state = (state + _STEP) & _MASK
        bits = _mixed(state)
        if hopeless is not None and number < DRAWS and hopeless(bits):
            continue
        candidate = _instant(start + offset(bits, spread, length, nominal - start))
        refused = refusal(candidate, spread, zone) if constrained else None
        yield Draw(number, bits, candidate, refused)
        if refused is None:
            return


def _hopeless(
    spread: Spread, zone: tzinfo, nominal: int, start: int, end: int
) -> Callable[[int], bool]:
    """For a window, a function that says of 53 bits that their candidate is certainly refused."""
    refused, length = refuser(spread, zone, start, end), end - start
    if spread.distribution.name == "uniform":

        def exactly(bits: int) -> bool:
            second = start + min(length, bits * (length + 1) >> 53)
            return refused(second, second)

        return exactly

    from cronpoll.core.distributions import estimate

    def about(bits: int) -> bool:
        share = estimate(bits, spread.distribution, spread.window, length, nominal)
        if share is None:
            return False
        second = start + int(min(max(share, 0.0), 1.0) * (length + 1))
        first = max(second - _ESTIMATE_SECONDS, start)
        return refused(min(first, end), min(second + _ESTIMATE_SECONDS, end))

    return about


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


def offset(bits: int, spread: Spread, length: int, nominal: int) -> int:
    """Seconds into a window of `length` seconds for 53 random bits. `nominal`: where in the window
    the nominal time is."""
    if spread.distribution.name == "uniform":
        return min(length, bits * (length + 1) >> 53)
    from cronpoll.core.distributions import (
        share_of,
    )  # needs decimal, which a command that only reads must not load

    share = share_of(bits, spread.distribution, spread.window, length, nominal)
    return max(0, min(length, int(share * (length + 1) // 1)))


# -- names -----------------------------------------------------------------------------------------


def _period_id(nominal: datetime) -> str:
    return f"{nominal.isoformat()[:19]}Z"


def _period_key(strategy: Strategy, period_id: str, nominal: datetime, zone: tzinfo) -> str:
    if strategy == "stable":
        return period_id
    wall = nominal.astimezone(zone)
    if strategy == "daily":
        return wall.date().isoformat()
    year, week, _ = wall.isocalendar()
    return f"{year:04d}-W{week:02d}"


def _instant(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)
