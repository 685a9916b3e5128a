"""The child that imports callbacks, so that what happens at import happens to it and not to the daemon.

`python -P -m cronpoll.config.importer` reads one JSON request from standard input, and for each callback writes a line
when it begins and a line when it is done to the descriptor named in the request. Whoever reads them knows, if this
process dies or hangs, which callback it was. Whatever the imported code prints goes elsewhere.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def resolve(target: str) -> Any:
    """The object that `package.module:name.attribute` names. Whatever importing it raises is raised."""
    module_name, _, attributes = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def examine(target: str) -> dict[str, Any]:
    """What there is to say about a callback: usable and how, or why not."""
    from cronpoll.core.registrations import is_async

    try:
        found = resolve(target)
    except SystemExit as error:
        return {"problem": f"importing it ends the program (SystemExit: {error})"}
    except BaseException as error:  # the module's own code: it may raise anything
        return {"problem": _cause(target, error)}
    if not callable(found):
        return {"problem": f"found {type(found).__name__}, expected something that can be called"}
    return {"async": is_async(found)}


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
        return f"there is no module {error.name!r} on the path (python_path and the environment of this program)"
    if isinstance(error, AttributeError) and module in sys.modules:
        return f"the module {module!r} has no {name!r}"
    return f"importing it fails ({type(error).__name__}: {text})"


def main() -> None:
    request = json.load(sys.stdin)
    answers = request["answers"]
    sys.path[:0] = request["path"]
    # What the imported code writes to standard output must not reach whoever reads ours, nor block.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for index, target in request["targets"]:
        os.write(answers, json.dumps({"begin": index}).encode() + b"\n")
        os.write(answers, json.dumps({"done": index, **examine(target)}).encode() + b"\n")


if __name__ == "__main__":
    main()
