"""The command `cronpoll`: one small file per family of commands."""

import gc
from typing import Final

_GARBAGE: Final = 100_000
"""How many objects a command makes before it looks for garbage. A command ends soon, and the system
takes all of its memory back: looking for garbage on the way takes a tenth of the time of `status`,
most of it while modules are imported. So this comes before they are."""

gc.set_threshold(_GARBAGE)
