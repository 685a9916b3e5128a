"""What cronpoll promises, by name, and which properties of the source documents each promise
restates.

The documents contradict each other in places: 001 wants a start to be due *and* retry-eligible at
once, which forbids every retry between two due minutes; 003 counts successes per due tick, which a
run that outlives its minute violates by itself; Kron starts a period once, whatever becomes of it.
Each promise below is what remains when they are reconciled, in a form that can be decided over a
finite record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, eq=False, slots=True)  # each is itself alone: a key that costs nothing
class Guarantee:
    """A promise: its name, what it says, and where it comes from."""

    name: str
    promise: str
    sources: tuple[str, ...]


START_OWED: Final = Guarantee(
    "start-owed",
    "A run starts only by hand or because a start is owed: for a due minute, a retry, an "
    "interrupted run, the start of the machine or the daemon, the success of the task before "
    "it, or what was still owed when a schedule was edited or a run began by hand; and only if "
    "the task is registered and the scheduler active",
    ("001 S3", "003 S3"),
)
NO_OVERLAP: Final = Guarantee(
    "no-overlap",
    'A task never runs twice at once, unless its concurrency is "allow"; started by hand, not '
    "even then",
    ("001 S1", "003 S1"),
)
ENDS_FOLLOW_STARTS: Final = Guarantee(
    "ends-follow-starts",
    "Every end belongs to an open run of that task, and every run ends once",
    ("001 S2", "003 S2"),
)
ONE_EXECUTION: Final = Guarantee(
    "one-execution-per-period",
    "A due instant, or a period of a window, is executed at most once; retries and "
    "interrupted restarts are attempts of "
    "the same execution",
    ("Kron 2", "003 S4"),
)
ONE_SUCCESS: Final = Guarantee(
    "one-success-per-period",
    "Of the attempts that belong to one period, at most one succeeds",
    ("003 S4",),
)
NO_BURST: Final = Guarantee(
    "no-make-up-bursts",
    "After any pause there is one start, however many were missed: for the latest due instant "
    "that gets one by the rules",
    ("001 S6", "Kron 4"),
)
ACCOUNTED: Final = Guarantee(
    "every-minute-accounted",
    "Each due instant is started, or recorded as missed or skipped, in order and without a gap",
    ("Kron 5", "003 L1"),
)
FOR_CAUSE: Final = Guarantee(
    "unstarted-only-for-cause",
    "A due instant goes without its own start only because of its deadline, its catch-up rule, "
    '"forbid" during a run, or a later one that makes up for it',
    ("003 L1", "Kron 7"),
)
PERMANENT: Final = Guarantee(
    "outcomes-permanent",
    "Every due instant and period has one outcome: what was settled, with a start or without, "
    "is neither started nor settled again, nor counted in a summary",
    ("Kron 5",),
)
RETRY_RULE: Final = Guarantee(
    "retry-rule",
    "A retry comes when its delay has passed since the end of the failed run, at least a second "
    "after that run's start, not earlier, and as often as its task allows",
    ("001 S3", "003 S3"),
)
DEADLINE: Final = Guarantee(
    "deadline",
    "Nothing starts later than its deadline, including retries and restarts after an interruption",
    ("Kron",),
)
IN_WINDOW: Final = Guarantee(
    "chosen-in-window",
    "A chosen time lies in its period's window, and the constraints allow it",
    ("Kron 1", "Kron 7"),
)
DETERMINISTIC: Final = Guarantee(
    "chosen-time",
    "A chosen time is the one that follows from name, period, seed and settings, computed again",
    ("Kron 3",),
)
SUSPENSION: Final = Guarantee(
    "suspension-holds",
    "A suspended task starts only by hand, and nothing of it is settled",
    ("Kron 6",),
)
QUARANTINE: Final = Guarantee(
    "quarantine",
    "From the third time on that the process dies while a task runs, the task is held back for "
    "as long as the rule says",
    (),
)
ORDERS: Final = Guarantee(
    "orders-by-hand",
    "A run is ended by hand only if somebody ordered it, and is not tried again; a suspension "
    "with an end ends then by itself; a start that was ordered ahead happens once, at its time "
    "or as soon after it as the task is free",
    (),
)
LOCKS: Final = Guarantee("locks", "Tasks that share a lock never run at the same time", ())
SLOTS: Final = Guarantee(
    "slots", "There are never more runs at once than the limit on parallel runs", ()
)
QUIET_AFTER_STOP: Final = Guarantee(
    "quiet-after-stop",
    "After an orderly stop nothing starts and nothing ends until the next instance begins",
    ("001 S4a", "001 S4b", "003 S5a", "003 S5b"),
)
QUIET_AFTER_CRASH: Final = Guarantee(
    "quiet-after-crash",
    "A run that was open when the process died neither ends nor goes on in the record: the next "
    "instance declares it interrupted",
    ("001 S5a", "001 S5b", "003 S6a", "003 S6b"),
)
STOP_WAITS: Final = Guarantee(
    "stop-waits", "When the scheduler has stopped, no run is open", ("001 S7", "003 S5b")
)
INVALID: Final = Guarantee(
    "invalid-never-registered",
    "No task is registered whose name, expression or delay the rules refuse",
    ("003 S3",),
)
WRONG_CLOCK: Final = Guarantee(
    "settled-only-forwards",
    "What is settled is taken back only if a clock had been wrong by more than a day and the "
    "record says so",
    ("Kron 5",),
)
CHAINED: Final = Guarantee(
    "chained",
    "A task that follows another is due once for each success of that task, except of runs "
    "started by hand, at once and for the same period; nothing else makes it due",
    (),
)
OWED_STARTED: Final = Guarantee(
    "owed-started",
    "What is owed is started, or settled otherwise, within a minute of the recorded clock (and "
    "a minute more for every ten thousand tasks), once nothing recorded stands in its way, such "
    "as its own run, a lack of slots, a suspension or a failing disk",
    ("003 L1", "001 L2", "001 P1", "003 R1"),
)
INTERRUPTED_RESTARTED: Final = Guarantee(
    "interrupted-restarted",
    "What was interrupted when the process died is started again within the same time after the "
    "next instance has begun",
    ("001 L3", "001 P2", "003 R2"),
)
INIT_ENDS: Final = Guarantee(
    "initialize-ends",
    "Every initialize that begins ends, with success or with an error",
    ("001 S8", "003 L3"),
)
STOP_ENDS: Final = Guarantee(
    "stop-ends",
    "A stop ends within a minute of the end of the last run",
    ("001 L1", "001 S7", "003 L2"),
)

CLOCK: Final = Guarantee(
    "recorded-clock",
    "Recorded times run forwards unless the record says that the clock was set; and a step of "
    "the clock, a sleep or a failing disk was as long as the record says, and is no excuse for "
    "anything before it",
    ("001 F1",),
)
WHOLE: Final = Guarantee(
    "record-whole",
    "A journal belongs to one scheduler and nothing is missing from it: every instance is new, "
    "runs are numbered without gaps, and every event says what it changes",
    ("Kron 5",),
)

GUARANTEES: Final = (
    START_OWED,
    NO_OVERLAP,
    ENDS_FOLLOW_STARTS,
    ONE_EXECUTION,
    ONE_SUCCESS,
    NO_BURST,
    ACCOUNTED,
    FOR_CAUSE,
    PERMANENT,
    RETRY_RULE,
    DEADLINE,
    IN_WINDOW,
    DETERMINISTIC,
    SUSPENSION,
    QUARANTINE,
    ORDERS,
    LOCKS,
    SLOTS,
    QUIET_AFTER_STOP,
    QUIET_AFTER_CRASH,
    STOP_WAITS,
    INVALID,
    WRONG_CLOCK,
    CHAINED,
    OWED_STARTED,
    INTERRUPTED_RESTARTED,
    INIT_ENDS,
    STOP_ENDS,
    CLOCK,
    WHOLE,
)

ASSUMED: Final = (
    (
        "001 A1",
        "003 A1",
        "Every callback ends in finite time unless the process dies: nothing a scheduler "
        "can enforce",
    ),
    (
        "001 F1",
        "",
        "The process is given processor time: a suspension is recorded, and excluded from "
        "every bound",
    ),
    ("", "003 F0", "A record is finite, so no infinity of events lies in a bounded time"),
)
"""What the documents assume of the world and do not ask of a scheduler."""


def table() -> str:
    """The guarantees as a Markdown table: the one in the manual."""
    lines = ["| guarantee | promise |", "|---|---|"]
    lines += [f"| `{one.name}` | {one.promise} |" for one in GUARANTEES]
    return "\n".join(lines)
