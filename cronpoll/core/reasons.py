"""Why a due instant got no start of its own, or a late one: the words, in one place.

Events carry them, and so the log, `history`, `why` and `simulate` say the same.
"""

from __future__ import annotations

from typing import Final

from cronpoll.core.model import TaskConfig

STILL_RUNNING: Final = "the task was still running"
NOT_RUNNING: Final = "the scheduler was not running"
LATE: Final = "the scheduler was late: suspended, held up, or waiting for a slot"
SUSPENDED: Final = "the task was suspended"
OVERTAKEN: Final = "overtaken by a later period"
TOO_LATE: Final = "its deadline has passed"
STOPPED: Final = "the scheduler was stopped before it ended"
DIED_UNREGISTERED: Final = "the process died; the task was unregistered"
OWED_OVERTAKEN: Final = "it was still owed from before, and a later start stands for it"
RESET: Final = 'its schedule was edited, and on_change is "reset"'
RETRY_OVERTAKEN: Final = "a start was owed for another reason: {}"


def not_made_up_for(cause: str, config: TaskConfig, *, too_late: bool) -> str:
    """A cause of lateness, and the rule by which what was late is not started any more."""
    rule = TOO_LATE if too_late else f'catch_up is "{config.options.catch_up}"'
    return f"{cause}, and {rule}"
