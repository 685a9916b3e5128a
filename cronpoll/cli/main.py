"""`cronpoll`: the group of commands. Each is imported when it is asked for, so that none pays for
another."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from errno import EBADF, EDQUOT, EFBIG, EIO, ENOSPC
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final, NoReturn

import click

from cronpoll import __version__

COMMANDS: Final = {
    "validate": "cronpoll.cli.validate:validate",
    "schema": "cronpoll.cli.schema:schema",
    "status": "cronpoll.cli.status:status",
    "run": "cronpoll.cli.run:run",
    "suspend": "cronpoll.cli.suspend:suspend",
    "resume": "cronpoll.cli.resume:resume",
    "at": "cronpoll.cli.at:at",
    "stop-run": "cronpoll.cli.stop_run:stop_run",
    "reload": "cronpoll.cli.reload:reload",
    "next": "cronpoll.cli.next:next_",
    "explain": "cronpoll.cli.explain:explain",
    "init": "cronpoll.cli.starter:init",
    "import": "cronpoll.cli.importing:import_",
    "takeover": "cronpoll.cli.takeover:takeover",
    "spread": "cronpoll.cli.spreading:spread",
    "plan": "cronpoll.cli.plan:plan",
    "simulate": "cronpoll.cli.simulate:simulate",
    "logs": "cronpoll.cli.logs:logs",
    "history": "cronpoll.cli.history:history",
    "why": "cronpoll.cli.why:why",
    "audit": "cronpoll.cli.auditing:audit",
    "metrics": "cronpoll.cli.metrics:metrics",
    "journal": "cronpoll.cli.journal:journal",
    "notify": "cronpoll.cli.notify:notify",
    "help": "cronpoll.cli.help:help_",
    "serve": "cronpoll.cli.serve:serve",
    "demo": "cronpoll.cli.demo:demo",
}


_UNWRITTEN: Final = frozenset({EBADF, EDQUOT, EFBIG, EIO, ENOSPC})


class LazyGroup(click.Group):
    def main(self, *args: Any, **options: Any) -> Any:
        """As click has it; but what cannot be shown in the encoding of the terminal is shown as an
        escape, and output that cannot be written is one line and an exit code."""
        if sys.stdout is None:
            _unwritten("it is closed")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return super().main(*args, **options)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.filename is not None or error.errno not in _UNWRITTEN:
                raise
            _unwritten(error.strerror or str(error))

    def invoke(self, ctx: click.Context) -> Any:
        atexit.register(gc.freeze)  # nor does it look for garbage at its end
        wants_json = "--json" in (*ctx._protected_args, *ctx.args)  # noqa: SLF001  click's parser
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if not wants_json:
                raise
            from cronpoll.cli.common import print_json
            from cronpoll.core.view import Failed

            print_json(Failed(error.format_message()))
            sys.exit(error.exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from cronpoll.core.values import close  # for mistakes only

            if hint := close(args[0], COMMANDS):
                text = f"{error.format_message()} Did you mean {hint!r}?"
                raise click.UsageError(text, ctx) from error
            raise

    def get_command(  # click's signature
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        _import_msgspec()
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def _import_msgspec() -> None:
    """Every command needs it. It takes from `typing_extensions`, if that is installed, what it else
    takes from `typing`, where all of it is; loading that costs as much as decoding a thousand
    tasks."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment] # as if it were absent
    try:
        import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]


def _unwritten(reason: str) -> NoReturn:
    """End without what could not be written; nor try it again when the interpreter ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if sys.stderr is not None:
        sys.stderr.write(f"cronpoll: cannot write to standard output: {reason}\n")
    sys.exit(3)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="cronpoll")
def main() -> None:
    """A cron scheduler with exact rules.

    Exit codes: 0 all is well, 1 the answer is no (problems were found, something fails, a request
    was refused), 2 the command was called wrongly, 3 the daemon, its state, a file or the output
    cannot be reached, read or written.
    """
