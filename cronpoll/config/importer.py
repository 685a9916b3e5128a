"""The child that imports callbacks, so that what happens at import happens to it and not to the
daemon.

`python -P -m cronpoll.config.importer` reads one JSON request from standard input, and for each
callback writes a line when it begins and a line when it is done to the descriptor named in the
request. Whoever reads them knows, if this process dies or hangs, which callback it was. Whatever
the imported code prints goes elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import Any, Final

from cronpoll.config.trust import Distrust, untrusted
from cronpoll.core.errors import abbreviate
from cronpoll.core.model import ERROR_LIMIT
from cronpoll.core.registrations import is_async


class DistrustedError(Exception):
    """Somebody else than root could have written the code."""

    def __init__(self, distrust: Distrust) -> None:
        super().__init__(str(distrust))
        self.distrust = distrust


def _below(directories: Iterable[str]) -> tuple[str, ...]:
    """How the names of files below these directories begin."""
    return tuple(os.path.join(os.path.abspath(directory), "") for directory in directories)


_OWN: Final = _below(entry for entry in sys.path if entry not in ("", "/"))
"""Where this program itself is imported from: `python_path` is added later."""


class _Sentry:
    """Looks at every module file, and its bytecode, before it is executed, unless this program
    could import it before: those below `python_path`, and below directories that a module adds to
    `sys.path`. Finds nothing itself."""

    def __init__(self, roots: list[str]) -> None:
        self._roots = _below(roots)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not spec.has_location:
            return
        origin = os.path.abspath(str(spec.origin))
        if origin.startswith(_OWN) and not origin.startswith(self._roots):
            return
        for file in (spec.origin, spec.cached):
            if file and os.path.exists(file) and (distrust := untrusted(file)) is not None:
                raise DistrustedError(distrust)


def stand_guard(roots: list[str]) -> None:
    sys.meta_path[:] = [
        _Sentry(roots),
        *(finder for finder in sys.meta_path if not isinstance(finder, _Sentry)),
    ]


def resolve(target: str, *, check_ownership: bool = False) -> Any:
    """The object that `package.module:name.attribute` names. Whatever importing it raises is
    raised.

    `check_ownership`: each file on the way is looked at before it is executed.
    """
    module_name, _, attributes = target.partition(":")
    if check_ownership:
        path = None
        parts = module_name.split(".")
        for depth in range(1, len(parts) + 1):
            prefix = ".".join(parts[:depth])
            spec = PathFinder.find_spec(prefix, path)
            if spec is not None and spec.has_location and spec.origin is not None:
                distrust = untrusted(spec.origin)
                if distrust is not None:
                    raise DistrustedError(distrust)
            path = getattr(importlib.import_module(prefix), "__path__", None)
    found: Any = importlib.import_module(module_name)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def look_up(
    target: str, positional: int, names: list[str], *, check_ownership: bool
) -> dict[str, Any]:
    """What there is to say about a callback: usable and how, or why not."""
    try:
        found = resolve(target, check_ownership=check_ownership)
    except DistrustedError as error:
        return {
            "problem": f"will not be imported by root: {error} (--trust-files lifts this)",
            "denied": list(error.distrust),
        }
    except SystemExit as error:
        return {
            "problem": abbreviate(
                f"importing it ends the program (SystemExit: {error})", ERROR_LIMIT
            )
        }
    except BaseException as error:  # the module's own code: it may raise anything
        return {"problem": _cause(target, error)}
    if not callable(found):
        return {"problem": f"found {type(found).__name__}, expected something that can be called"}
    problem = _misfit(found, positional, names)
    return {"problem": problem} if problem else {"async": is_async(found)}


def _misfit(found: Any, positional: int, names: list[str]) -> str | None:
    """Why it cannot be called with so many arguments and such keywords, or None if it can or if
    nobody can tell."""
    try:
        signature = inspect.signature(found)
    except BaseException:  # builtins without one, or objects that raise when asked
        return None
    try:
        signature.bind(*range(positional), **dict.fromkeys(names))
    except TypeError as error:
        given = f"args has {positional} and kwargs {', '.join(names) or 'nothing'}"
        return f"cannot be called as it is registered: {error} ({given})"
    return None


def _cause(target: str, error: BaseException) -> str:
    module, _, name = target.partition(":")
    try:
        text = str(error)
    except BaseException:  # as above, its text included
        text = "(its text cannot be rendered)"
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and (module == error.name or module.startswith(error.name + "."))
    ):
        return (
            f"there is no module {error.name!r} on the path (python_path and the environment of "
            "this program)"
        )
    if isinstance(error, AttributeError) and module in sys.modules:
        return f"the module {module!r} has no {name!r}"
    return f"importing it fails ({type(error).__name__}: {abbreviate(text, ERROR_LIMIT)})"


def main() -> None:
    request = json.load(sys.stdin)
    answers = request["answers"]
    sys.path[:0] = request["path"]
    if request["check_ownership"]:
        stand_guard(request["path"])
    # What the imported code writes to standard output must not reach whoever reads ours, nor block.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for index, (target, positional, names) in request["calls"]:
        os.write(answers, json.dumps({"begin": index}).encode() + b"\n")
        answer = look_up(target, positional, names, check_ownership=request["check_ownership"])
        os.write(answers, json.dumps({"done": index, **answer}).encode() + b"\n")


if __name__ == "__main__":
    main()
