"""The W3C trace context of a run, by which a tracing tool puts together what belongs to it. Pure.

Each run is a trace of its own. Its identifiers follow from the id of the run: whoever has the
journal can find the trace, and the other way round, and nothing is left to chance.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

TRACEPARENT: Final = "TRACEPARENT"
_SAMPLED: Final = "01"
_WRITTEN: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?![0-9a-f])"
)


def traceparent(run_id: str, ours: str = "") -> str:
    """The context that a run gets. `ours`: that of the daemon, whose flags the run has, too; if
    there is none, or none that is valid, the run is to be sampled."""
    digest = hashlib.sha256(run_id.encode()).hexdigest()
    given = _WRITTEN.match(ours)
    flags = given[1] if given else _SAMPLED
    return f"00-{digest[:32]}-{digest[32:48]}-{flags}"
