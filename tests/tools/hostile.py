# ruff: noqa: SIM905  words in a row are easier to read, and to add to
"""What hostile input is made of: the pieces that parsers know, in any order, and what nobody
expects between them.

Text that is only random is refused by its first character. So each strategy here puts together
words of the language that a parser reads, right and wrong ones, and changes a few of them; records
have names, instants and runs in common, so that they say something about each other.
"""

from __future__ import annotations

import json
import re
import types
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from cronpoll.config.registry import Daemon, Task, by_key
from cronpoll.core import events as e
from cronpoll.core.model import Book, Options, TaskConfig, TaskState
from cronpoll.core.periods import Constraints, Distribution, Seed, Spread, Window
from cronpoll.store.journal import codec

NOW: Final = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
STRANGE: Final = st.sampled_from(
    [
        *"\0\x07\x7f\x85\xa0\u2028\u202e\ufeff\ufffd\U0001f600é٣²\r\n\t\v\\\"'%#=(){}[],;@~",
        "\r\n",
        "\x1b[31m",
    ]
)
"""Characters that end lines, hide text, look like digits, or mean something to a parser."""


def mostly(
    usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any], share: int = 8
) -> st.SearchStrategy[Any]:
    """The rare one once in so many times."""
    return st.integers(1, share).flatmap(lambda number: rare if number == share else usual)


def mutated(text: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Some bytes with some of them changed: flipped, cut out, doubled, moved."""
    return st.builds(
        _with_changes,
        text,
        st.lists(st.tuples(st.integers(0, 4), *[st.integers(0, 1 << 16)] * 3), max_size=4),
    )


def _with_changes(data: bytes, changes: list[tuple[int, int, int, int]]) -> bytes:
    for kind, *numbers in changes:
        if not data:
            return data
        first, second = sorted(number % (len(data) + 1) for number in numbers[:2])
        match kind:
            case 0:
                at = numbers[0] % len(data)
                data = data[:at] + bytes([data[at] ^ 1 << numbers[2] % 8]) + data[at + 1 :]
            case 1:
                data = data[:first] + data[second:]
            case 2:
                data = data[:second] + data[first:]
            case 3:
                data = data[second:] + data[first:second] + data[:first]
            case 4:
                data = data[:first] + bytes([numbers[2] % 256]) + data[first:]
    return data


# -- cron ------------------------------------------------------------------------------------------

_CRON_WORDS: Final = (
    "* 0 1 5 7 12 29 31 59 60 00 007 - , / 1-5 9-5 1- */2 mon JAN ? L # @daily +1 -1 1_0 "
    "0x1 99999999999999999999 0000000000000001 ٣ ²"
).split()
_BLANK: Final = mostly(
    st.just(" "), st.sampled_from(["", "  ", "\t", " \t ", "\n", "\xa0", "\u2003"]), 12
)
_FIELDS: Final = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: "-".join(map(str, sorted(ends))))
    right = st.one_of(
        st.just("*"),
        st.lists(st.one_of(number.map(str), span), min_size=1, max_size=4).map(",".join),
    )
    wrong = st.lists(st.one_of(st.sampled_from(_CRON_WORDS), STRANGE), max_size=4).map("".join)
    beyond = st.sampled_from([str(low - 1), str(high + 1), f"{low}-{high + 1}", f"{high}-{low}"])
    return mostly(right, st.one_of(wrong, beyond), 15)


EXPRESSIONS: Final = st.one_of(
    st.tuples(*[part for low, high in _FIELDS for part in (_field(low, high), _BLANK)]).map(
        "".join
    ),
    st.tuples(*[_field(low, high) for low, high in _FIELDS]).map(" ".join),
    st.lists(st.one_of(st.sampled_from(_CRON_WORDS), _BLANK, st.just(" ")), max_size=14).map(
        "".join
    ),
    st.text(max_size=30),
)

# -- the registry file -----------------------------------------------------------------------------

_TASK_KEYS: Final = [*by_key(Task), "retry", "zz"]
_DAEMON_KEYS: Final = [*by_key(Daemon), "zz"]
_INNER_KEYS: Final = (
    "mode duration name shape mu sigma lambda dir strategy salt hours dow dom months "
    "between dates delay backoff max_delay "
    "max_attempts A"
).split()
_TOML_VALUES: Final = (
    "1 -1 0 1000 0.1 1e-320 5e-324 1e308 1e400 nan -nan inf -inf true false 1979-05-27 "
    "0001-01-01 9999-12-31 07:32:00 "
    "1979-05-27T07:32:00Z 0001-01-01T00:00:00+14:00 9223372036854775807 "
    "1000000000000000000000000000000 -0x1 HUGE DIGITS LONG"
).split()
_TOML_TEXTS: Final = (
    "|a|\0|\x1b[31m|5m|1h30m|0.5s|99999999999d|-5s|daily|uniform|normal|after|* * * * *|0 "
    "0 30 2 *|a:b|a.b:c.d|Europe/Berlin|../../x"
    "|/etc/passwd|é|9-17|17-9|22:00-06:00|2026-12-24..2027-01-06|9999-12-31..0001-01-01|queue|replace|process|thread|first|reset|never"
    "|stable|mid|late|\u2028|\x85"
).split("|")
_TOML_VALUES += ["'''\n'''", '"""\\\n  x"""', *map(json.dumps, _TOML_TEXTS)]
_LARGE: Final = {"HUGE": "0x" + "f" * 5_000, "DIGITS": "1" * 4_400, "LONG": f'"{"x" * 1_100}"'}
_SCALAR: Final = st.sampled_from(_TOML_VALUES).map(lambda value: _LARGE.get(value, value))
_TOML_VALUE: Final = st.recursive(
    _SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(
            st.tuples(st.sampled_from(_INNER_KEYS), inner),
            max_size=3,
            unique_by=lambda pair: pair[0],
        ).map(lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }"),
    ),
    max_leaves=6,
)
_RIGHT_VALUES: Final = {
    "retry_delay": '"5m"',
    "retry": '{ delay = "5m", backoff = 2, max_attempts = 3 }',
    "timezone": '"Europe/Berlin"',
    "window": '{ mode = "around", duration = "3h" }',
    "distribution": '{ name = "exponential", lambda = 2.5, dir = "late" }',
    "seed": '{ strategy = "weekly", salt = "x" }',
    "only": '{ hours = ["9-17"], between = ["22:00-06:00"] }',
    "avoid": '{ dates = ["2026-12-24..2027-01-06", 2026-05-01], dow = [0, 6] }',
    "env": '{ A = "b" }',
    "deadline": "90",
}


def _pairs(keys: list[str], most: int) -> st.SearchStrategy[dict[str, str]]:
    def value(key: str) -> st.SearchStrategy[str]:
        return (
            st.one_of(_TOML_VALUE, st.just(_RIGHT_VALUES[key]))
            if key in _RIGHT_VALUES
            else _TOML_VALUE
        )

    pair = st.sampled_from(keys).flatmap(lambda key: st.tuples(st.just(key), value(key)))
    return st.lists(pair, max_size=most).map(dict)


def _table(header: str, pairs: dict[str, str]) -> str:
    return f"{header}\n" + "".join(f"{key} = {value}\n" for key, value in pairs.items())


_RIGHT_TASK: Final = st.builds(
    lambda name, what: {"name": f'"{name}"', "cron": '"0 3 * * *"', **what},
    st.sampled_from("abc"),
    st.sampled_from(
        [
            {"command": '["true"]'},
            {"callback": '"m:f"'},
            {"callback": '"m:f"', "isolation": '"thread"'},
        ]
    ),
)
_TASK: Final = st.one_of(
    st.tuples(_RIGHT_TASK, _pairs(_TASK_KEYS, 2)).map(lambda both: both[0] | both[1]),
    _pairs(_TASK_KEYS, 4),
).map(lambda pairs: _table("[[task]]", pairs))
_ODD_ENDS: Final = st.sampled_from(
    [
        "task = 1\n",
        "[task]\n",
        "[[task.env]]\n",
        "[task.env]\nA = 1\n",
        "a.b.c = 1\n",
        "[daemon.x]\n",
        '"\\u0007" = 1\n',
        "[[daemon]]\n",
    ]
)
_DOCUMENT: Final = st.tuples(
    st.one_of(st.just(""), _pairs(_DAEMON_KEYS, 3).map(lambda pairs: _table("[daemon]", pairs))),
    st.one_of(st.just(""), _pairs(_TASK_KEYS, 3).map(lambda pairs: _table("[defaults]", pairs))),
    st.lists(_TASK, max_size=3).map("".join),
    mostly(st.just(""), _ODD_ENDS, 4),
).map("".join)


def _inserted(text: str, piece: str, at: int) -> str:
    place = at % (len(text) + 1)
    return text[:place] + piece + text[place:]


REGISTRIES: Final = st.one_of(
    _DOCUMENT,
    _DOCUMENT,
    _DOCUMENT.map(lambda text: text.replace("\n", "\r\n")),
    _DOCUMENT.map(lambda text: "\ufeff" + text),
    st.builds(_inserted, _DOCUMENT, STRANGE, st.integers(0, 1 << 16)),
).map(str.encode)
REGISTRY_BYTES: Final = mostly(REGISTRIES, mutated(REGISTRIES), 4)
ANY_VALUE: Final = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.just(20_000).map(lambda bits: 1 << bits), st.floats(), st.text(max_size=8), st.binary(max_size=4),
        st.dates(), st.datetimes(), st.times(),
        st.sampled_from(["5m", "1h", "uniform", "daily", "after", "9-17", "22:00-06:00", "2026-12-24", "2026-01-02..2026-01-01"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_INNER_KEYS), inner, max_size=3)),
    max_leaves=5,
)  # fmt: skip
"""Whatever a parser of TOML, or a caller, could hand over."""

# -- crontabs and krontabs -------------------------------------------------------------------------

_BEGINNINGS: Final = [
    "0 0 * * * ",
    "*/5 1-3 */2 * mon ",
    "0 0 */2 * mon ",
    "@daily ",
    "@reboot ",
    "-0 4 * * 7 ",
    "0 0 30 2 * ",
    "* * * * *",
    "",
]
_CRON_PIECES: Final = (
    "* 0 60 , */2 mon root www-data /bin/true %a%b \\% \\\\% MAILTO=x SHELL=/bin/bash "
    "SHELL=bash HOME=/srv CRON_TZ=UTC CRON_TZ=Mars "
    'RANDOM_DELAY=30 RANDOM_DELAY=99999999999 A=\'x A="b" \'A\'="b" =x PATH= LOGNAME=me # '
    "@hourly ~ H"
).split()
_KRON_PIECES: Final = (
    "@win(after,3h) @win(center,90m) @win(around,.5s) @win( @win(after,3h "
    "@dist(skewEarly,shape=2) @dist(normal,mu=mid,sigma=3m) "
    "@dist(exponential,lambda=1e-3) @dist(skewLate,shape=1e30) @dist(uniform,shape=2) "
    "@seed(daily,salt=x) @seed(daily,salt='x') "
    '@seed(weekly,salt="a,b") @policy(concurrency=forbid,deadline=10m) @policy(deadline=0) '
    "@policy(suspend=maybe) "
    "@only(hours=9-17;dow=MON-FRI) @only(dom=1,2,31) @avoid(dates=2026-12-24..2026-12-31) "
    "@avoid(between=9:00-8:00) @avoid() "
    "@only(hours=25) @tz(UTC) @tz(../x) @tz(Europe/Berlin) @nope(1) name=backup "
    "name=restore name= command=/bin/true command= "
    "env=A=b env=A=c env=b shell=true shell=maybe timeout=5s timeout=1h30m timeout=1ns "
    "cwd=/srv cwd=x user=root user= group=x "
    'umask=022 stdout=inherit stdout=/x description=d "description=\\"x\\""'
).split()
_KRON_PIECES += [
    'command="/bin/x --full"',
    "command=\"a 'b c'\"",
    "command='x y'",
    'name="a\\tb"',
    "command=echo a b c",
]
_WORD: Final = mostly(
    st.sampled_from(_CRON_PIECES + _KRON_PIECES), st.one_of(STRANGE, st.text(max_size=5)), 10
)
_LINE: Final = st.tuples(
    st.sampled_from(_BEGINNINGS), st.lists(_WORD, max_size=7).map(" ".join)
).map("".join)
_KRON_LINE: Final = st.tuples(
    st.sampled_from(_BEGINNINGS[:3]),
    st.lists(st.sampled_from(_KRON_PIECES), max_size=4, unique=True).map(" ".join),
).map(lambda parts: f"{parts[0]}{parts[1]} command=/bin/true")
_ENDS: Final = mostly(st.just("\n"), st.sampled_from(["\r\n", "", "\n\n", "\r"]), 6)
CRONTABS: Final = (
    st.lists(st.tuples(st.one_of(_LINE, _LINE, _KRON_LINE), _ENDS).map("".join), max_size=6)
    .map("".join)
    .map(lambda text: text.encode(errors="surrogatepass"))
)
CRONTAB_BYTES: Final = mostly(
    st.one_of(CRONTABS, CRONTABS.map(lambda content: b"\xef\xbb\xbf" + content)),
    mutated(CRONTABS),
    5,
)

# -- records ---------------------------------------------------------------------------------------

_ODD_ZONES: Final = [timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]
_NEAR: Final = st.one_of(
    st.integers(-10, 10).map(lambda number: NOW.replace(second=0) + timedelta(minutes=number)),
    st.integers(-(10**6), 10**6).map(lambda number: NOW + timedelta(seconds=number)),
    st.integers(-40, 40).map(
        lambda number: NOW.replace(hour=3, minute=0, second=0) + timedelta(days=number)
    ),
)
_FAR: Final = st.one_of(
    st.datetimes(
        datetime(1900, 1, 2), datetime(9989, 12, 30), timezones=st.sampled_from([UTC, *_ODD_ZONES])
    ),
    st.sampled_from(
        [datetime(1900, 1, 1, tzinfo=UTC), datetime(9989, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    ),
)
SUPPORTED: Final = mostly(_NEAR, _FAR, 6)
_ENDS_OF_TIME: Final = [
    moment.replace(tzinfo=zone)
    for moment in (datetime.min, datetime.max)
    for zone in (UTC, *_ODD_ZONES)
]
IMPOSSIBLE: Final = st.sampled_from(
    [*_ENDS_OF_TIME, datetime(1899, 12, 31, tzinfo=UTC), datetime(9990, 1, 1, tzinfo=UTC)]
)
SPREADS: Final = st.sampled_from(
    [
        Spread(window=Window("around", 600_000)),
        Spread(
            window=Window("before", 90_500), distribution=Distribution(name="normal", sigma_ms=1)
        ),
        Spread(
            window=Window("after", 604_800_000),
            distribution=Distribution(name="skewLate", shape="0.5"),
        ),
        Spread(window=Window("after", 0), only=Constraints(hours=(3, 12))),
        Spread(
            window=Window("after", 3_600_000),
            avoid=Constraints(dow=(0,)),
            seed=Seed(strategy="weekly"),
        ),
    ]
)
_BY_NAME: Final[dict[str, st.SearchStrategy[Any]]] = {
    "task_name": st.sampled_from(["a", "b", "a", "b", "", "\x1b[31m\n"]),
    "run_id": st.sampled_from(["i-1", "i-2", "j-1", "j-2"]),
    "newest_run": st.sampled_from([None, "i-1", "i-2", "j-1"]),
    "instance_id": st.sampled_from(["i", "j"]),
    "zone": st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Mars/Base", "", "../x", "\0"]),
    "timezone": st.sampled_from([None, "UTC", "Europe/Berlin"]),
    "cron_expression": mostly(
        st.sampled_from(["* * * * *", "0 3 * * *", "0 12 1 * 1", "0 0 29 2 *"]), st.sampled_from(["", "61 * * * *", "0 0 30 2 *"])
    ),
    "spread": mostly(st.none(), SPREADS, 3),
}  # fmt: skip


def of_type(kind: Any, instants: st.SearchStrategy[datetime] = SUPPORTED) -> st.SearchStrategy[Any]:
    """Any value that a field of that type can have."""
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        limits = next((note for note in notes if isinstance(note, msgspec.Meta)), msgspec.Meta())
        if kind is float:
            return mostly(
                st.integers(-100_000, 100_000).map(
                    lambda n: min(max(limits.ge, float(n)), limits.le)
                ),
                st.floats(limits.ge, limits.le),
            )
        if kind is int:
            return mostly(st.integers(0, 4), st.integers(limits.ge, limits.le))
    if kind is datetime:
        return instants
    if kind is float:
        return mostly(st.floats(-1e6, 1e6), st.floats(allow_nan=False, allow_infinity=False))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return mostly(st.just("x"), st.text(st.characters(exclude_categories=("Cs",)), max_size=10))
    if kind is date:
        return st.dates()
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(
            *[
                st.none() if part is type(None) else of_type(part, instants)
                for part in get_args(kind)
            ]
        )
    if get_origin(kind) is tuple and get_args(kind)[-1] is not Ellipsis:
        return st.tuples(*[of_type(part, instants) for part in get_args(kind)])
    if get_origin(kind) is tuple:
        return mostly(
            st.just(()), st.lists(of_type(get_args(kind)[0], instants), max_size=3).map(tuple), 4
        )
    return record(kind, instants)


def record(kind: Any, instants: st.SearchStrategy[datetime] = SUPPORTED) -> st.SearchStrategy[Any]:
    """A record of some kind. Names, runs, zones and expressions are few, so that records speak
    about the same."""
    fields = {
        field.name: _BY_NAME[field.name]
        if field.name in _BY_NAME
        else of_type(field.type, instants)
        for field in msgspec.structs.fields(kind)
        if kind is not Options or field.required or field.name in _OPTIONS
    }
    return st.builds(kind, **fields)


_OPTIONS: Final = (
    "spread",
    "catch_up",
    "concurrency",
    "interrupted",
    "max_attempts",
    "deadline_ms",
    "retry_backoff",
    "suspend",
)

EVENTS: Final = st.one_of([record(kind) for kind in e.CATALOGUE.values()])
JOURNALED: Final = st.one_of([record(kind) for kind in codec.JOURNALED])
_ABSURD_INSTANTS: Final = mostly(SUPPORTED, IMPOSSIBLE, 3)
ABSURD: Final = st.one_of([record(kind, _ABSURD_INSTANTS) for kind in codec.JOURNALED])
STATES: Final = record(TaskState)
ABSURD_STATES: Final = record(TaskState, _ABSURD_INSTANTS)
_FIRST: Final = st.tuples(
    record(e.InstanceStarted),
    record(e.TaskAdded).map(lambda event: msgspec.structs.replace(event, task_name="a")),
).map(list)
RECORDS: Final = st.tuples(_FIRST, st.lists(mostly(JOURNALED, EVENTS), max_size=15)).map(
    lambda parts: [*parts[0], *parts[1]]
)
"""Events of any kind in any order; the first two are such that the others can have a meaning."""
CONFIGS: Final = record(TaskConfig)

_HOSTILE_JSON: Final = [
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1899-12-31T23:59:59Z", "9990-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z", "2026-03-01T12:00:00", "", "x", "\x1b[31m", None, True, -1, 0, 1 << 62, 1 << 80, 10**400, -(1 << 70), 1e308,
    -1e308, 5e-324, [], {}, [[]], {"a": {}}, "nan", "0", "1e9999", "9" * 5_000,
]  # fmt: skip


def _hostile_line(value: Any, picks: list[int], disguised: bool) -> bytes:
    """A record as JSON with some of its fields replaced, at any depth; `disguised`: with escapes
    where none are needed."""
    data = json.loads(msgspec.json.encode(value))
    for pick in picks:
        inside = data
        while True:
            key = sorted(inside)[pick % len(inside)] if inside else "at"
            if not (isinstance(inside.get(key), dict) and inside[key] and pick % 3):
                break
            inside = inside[key]
        if pick % 7 == 0:
            inside.pop(key, None)
        else:
            inside[key] = _HOSTILE_JSON[pick % len(_HOSTILE_JSON)]
    line = json.dumps(data).encode()
    return re.sub(rb'"([0-9])(?=[0-9]{3}-)', rb'"\\u003\1', line) if disguised else line


def hostile_lines(records: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Lines of a payload: right records, and such whose fields are not what they should be."""
    return st.builds(
        _hostile_line,
        records,
        st.lists(st.integers(0, 10**6), max_size=3),
        mostly(st.just(False), st.just(True)),
    )


BOOKS: Final = st.lists(STATES, max_size=2).map(
    lambda states: Book("ab12", "i", True, {task.task_name: task for task in states})
)


def segment(snapshot: bytes, payloads: list[bytes]) -> bytes:
    """A segment with intact checksums around whatever it holds."""
    frames = [codec.encode_frame("S", 1, snapshot)]
    frames += [
        codec.encode_frame("E", number, payload) for number, payload in enumerate(payloads, 2)
    ]
    return codec.encode_head("ab12", 1, NOW) + b"".join(frames)


def snapshot_of(lines: list[bytes]) -> bytes:
    head = codec.SnapshotHead(NOW, "ab12", "i", True, len(lines))
    return b"".join(line + b"\n" for line in [msgspec.json.encode(head), *lines])


def _payload(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


SEGMENTS: Final = st.builds(
    segment,
    st.lists(hostile_lines(ABSURD_STATES), max_size=2).map(snapshot_of),
    st.lists(st.lists(hostile_lines(ABSURD), min_size=1, max_size=4).map(_payload), max_size=3),
)
"""Intact bytes, any content."""
WHOLE_SEGMENTS: Final = st.builds(
    segment,
    BOOKS.map(lambda book: codec.encode_snapshot(book, NOW)),
    st.lists(st.lists(JOURNALED, min_size=1, max_size=3).map(codec.encode_events), max_size=4),
)
DAMAGED_SEGMENTS: Final = st.one_of(
    mutated(WHOLE_SEGMENTS), mutated(SEGMENTS), st.binary(max_size=200)
)
