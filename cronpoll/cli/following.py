"""What a run prints, shown as it comes: for `cronpoll run --follow`."""

from __future__ import annotations

import sys
import time
from typing import Final

import click

from cronpoll.core.text import visible
from cronpoll.output.reading import Line, OutputReader, Position

_LAST_SECONDS: Final = 5.0
"""After the end of a run, for the last of its output to be there."""
_PAUSE_SECONDS: Final = 0.1


class Following:
    """The output of one run, from its beginning."""

    def __init__(self, state_directory: str, run_id: str) -> None:
        self._reader = OutputReader(state_directory)
        self._run_id = run_id
        self._position = Position()
        self._over = False

    def show(self) -> None:
        """Print what has come since the last look."""
        run = None if self._over else self._reader.run(self._run_id)
        if run is None:
            return
        items, self._position, self._over = self._reader.read_on(run, self._position)
        for item in items:
            if isinstance(item, Line):
                click.echo(visible(item.text), err=item.stream == "stderr")
            else:
                click.echo(f"cronpoll: {item.text}", err=True)
        sys.stdout.flush()

    def finish(self) -> None:
        """The run has ended: print the rest."""
        for _ in range(int(_LAST_SECONDS / _PAUSE_SECONDS)):
            self.show()
            if self._over:
                return
            time.sleep(_PAUSE_SECONDS)
