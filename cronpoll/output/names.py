"""What the files of a run are called: safe and unambiguous, whatever the task is called."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Final, Literal, NamedTuple

from cronpoll.core.model import MILLISECOND
from cronpoll.core.zones import EPOCH

DIRECTORY: Final = "output"
LIVE: Final = "live"
SPARE: Final = "spare"

Stream = Literal["stdout", "stderr"]
STREAMS: Final[tuple[Stream, Stream]] = ("stdout", "stderr")
RAW: Final[dict[Stream, str]] = {"stdout": "out", "stderr": "err"}
INDEX: Final = "idx"
Kind = Literal["out", "err", "idx", "ok", "failed"]

_DIGITS: Final = 13
_NAME: Final = re.compile(
    rf"([0-9a-f]{{32}})-([0-9]{{{_DIGITS}}})-([0-9A-Za-z-]{{1,80}})\.(out|err|idx|ok|failed)"
)


class Label(NamedTuple):
    """What a file's name says: of which task, by the digest of its name; when the run started; its
    id."""

    digest: str
    started_at: datetime
    run_id: str

    @property
    def stem(self) -> str:
        since = max((self.started_at - EPOCH) // MILLISECOND, 0)
        return f"{self.digest}-{since:0{_DIGITS}}-{self.run_id}"


def digest_of(task: str) -> str:
    return hashlib.sha256(task.encode(errors="surrogatepass")).hexdigest()[:32]


def label_of(task: str, started_at: datetime, run_id: str) -> Label:
    """As the name of the file will say it: times are cut to milliseconds."""
    since = max((started_at - EPOCH) // MILLISECOND, 0)
    return Label(digest_of(task), EPOCH + since * MILLISECOND, run_id)


def parsed(name: str) -> tuple[Label, Kind] | None:
    """The label in a file's name, and what kind of file it is; None if it is none of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    digest, since, run_id, kind = found.groups()
    return Label(digest, EPOCH + int(since) * MILLISECOND, run_id), kind  # type: ignore[return-value]


class Place(NamedTuple):
    """Where the files are: the state directory."""

    state_directory: str

    # Asked for a dozen times in each run: joined by hand.

    @property
    def directory(self) -> str:
        return f"{self.state_directory}/{DIRECTORY}"

    @property
    def live(self) -> str:
        return f"{self.state_directory}/{DIRECTORY}/{LIVE}"

    @property
    def spare(self) -> str:
        return f"{self.state_directory}/{DIRECTORY}/{SPARE}"

    def raw(self, stem: str, stream: Stream) -> str:
        return f"{self.state_directory}/{DIRECTORY}/{LIVE}/{stem}.{RAW[stream]}"

    def beside(self, stem: str, kind: str) -> str:
        """The index of a run in progress, or the file of one that is over."""
        return f"{self.state_directory}/{DIRECTORY}/{stem}.{kind}"
