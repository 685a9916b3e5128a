"""Who may import whom, where clocks are read, and that no chance enters: the walls of the house."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

import cronpoll
from cronpoll.core import machine

PACKAGE = Path(cronpoll.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

CONTRIBUTING = PACKAGE / "manual" / "contributing.md"

# Each room and what it may import of the package, besides itself: a room, or one file of it. The
# order is the direction of the imports. `manual/contributing.md` has the same map for people.
ALLOWED = {
    "core": set(),
    "files": set(),
    "audit": {"core.model", "core.events"},
    "store": {"core", "files"},
    "output": {"core", "files"},
    "config": {"core", "files", "output.limits"},
    "convert": {"core", "config"},
    "runtime": {"core", "files", "store", "output", "config"},
    "daemon": {"core", "files", "store", "output", "config", "runtime", "__version__"},
    # Its audit asks the judge what was due: a calendar that the decisions do not share.
    "operator": {
        "core",
        "audit.facts",
        "audit.ticks",
        "config.spreads",
        "runtime.clock",
        "__version__",
    },
    "web": {
        "core",
        "files",
        "audit",
        "store",
        "output",
        "config",
        "runtime",
        "daemon",
        "__version__",
    },
    "cli": {
        "core",
        "files",
        "audit",
        "store",
        "output",
        "config",
        "convert",
        "runtime",
        "daemon",
        "operator",
        "web",
        "tasks",
        "__version__",
    },
    "tasks": {"core", "store", "config", "runtime"},
    "errors": {"core"},
    "testing": {"core", "store", "runtime"},
    "pytest_plugin": {"testing"},
    "__init__": {"core", "store", "runtime", "tasks", "errors"},
    "__main__": {"cli"},
}
# Packages from outside, by room.
OUTSIDE = {
    "core": {"msgspec"},
    "files": {"psutil"},
    "audit": {"msgspec"},
    "convert": set(),
    "store": {"msgspec"},
    "output": {"msgspec"},
    "config": {"msgspec"},
    "runtime": {"msgspec", "psutil", "structlog"},
    "daemon": {"apprise", "click", "daemon", "msgspec", "psutil", "watchfiles"},
    "operator": {"aiohttp", "click", "kubernetes_asyncio", "msgspec", "yaml"},
    "web": {"h11", "msgspec", "starlette", "uvicorn"},
    "cli": {"click", "msgspec", "psutil", "rich", "tomli_w"},
    "tasks": {"msgspec"},
    "errors": set(),
    "testing": set(),
    "pytest_plugin": {"pytest"},
    "__init__": set(),
    "__main__": set(),
}
PURE = {
    "asyncio",
    "logging",
    "os",
    "io",
    "socket",
    "subprocess",
    "threading",
    "time",
    "random",
    "secrets",
    "pathlib",
}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Of the whole file, beginning with the module itself."""
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def violations(path: Path) -> list[str]:
    room, wrong = room_of(path), []
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "cronpoll":
            targets = {rest[0], ".".join(rest[:2])} if rest else {"__init__"}
            if room not in targets and not targets & ALLOWED[room]:
                wrong.append(name)
        elif (first not in sys.stdlib_module_names and first not in OUTSIDE[room]) or (
            room in ("core", "audit") and first in PURE
        ):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    assert violations(path) == []


def test_the_check_itself_finds_a_wrong_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    (tmp_path / "audit").mkdir()
    judge = tmp_path / "audit" / "judge.py"
    judge.write_text(
        "from cronpoll.core import events as e\nfrom cronpoll.core import owed\n"
        "from cronpoll.core.model import Book\nfrom cronpoll.core.steps import Step\n"
        "import cronpoll.core\n"
    )
    assert sorted(violations(judge)) == [
        "cronpoll.core",
        "cronpoll.core.owed",
        "cronpoll.core.steps.Step",
    ]
    (tmp_path / "core").mkdir()
    stranger = tmp_path / "core" / "stranger.py"
    stranger.write_text(
        "import asyncio\nimport requests\nfrom cronpoll.runtime import engine\nfrom "
        "datetime import date\n"
    )
    assert sorted(violations(stranger)) == ["asyncio", "cronpoll.runtime.engine", "requests"]


def test_commands_print_types_as_json_and_nothing_else() -> None:
    """What has no type has no schema: a command does not write JSON of its own making."""
    by_hand = [
        path.stem for path in MODULES if room_of(path) == "cli" and "json" in imports_of(path)
    ]
    assert by_hand == ["schema"]  # which is what JSON is to look like


def rooms_in(package: Path) -> set[str]:
    """The directories of a package, those one level below, and its modules: as the map names
    them."""
    found = {path.stem for path in package.glob("*.py")}
    for directory in (path for path in package.rglob("*") if path.is_dir()):
        parts = directory.relative_to(package).parts
        if len(parts) <= 2 and "__pycache__" not in parts:
            found.add(f"{directory.name}/")
    return found


def test_every_room_is_on_the_map(tmp_path: Path) -> None:
    page = CONTRIBUTING.read_text()
    table = [line for line in page.splitlines() if line.startswith("| `")]
    lines = [line for line in table if line.count("|") == 4]
    named = {word for line in lines for word in re.findall(r"`([^`]+)`", line)}
    # Inside the judge and the page.
    assert rooms_in(PACKAGE) - named == {"fold/", "rules/", "static/"}
    (tmp_path / "attic" / "chest").mkdir(parents=True)
    (tmp_path / "shed.py").touch()
    assert rooms_in(tmp_path) == {"attic/", "chest/", "shed"}


def test_the_map_says_who_may_import_whom() -> None:
    for room in (
        "core",
        "files",
        "audit",
        "store",
        "output",
        "config",
        "convert",
        "runtime",
        "operator",
        "testing",
    ):
        (line,) = re.findall(rf"^\| `{room}/?` \|.*$", CONTRIBUTING.read_text(), re.MULTILINE)
        told = set(re.findall(r"`([a-z._]+)`", line.split("|")[3]))
        assert told == ALLOWED[room], room


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_begins_by_saying_what_lives_in_it(path: Path) -> None:
    assert ast.get_docstring(nodes_of(path)[0])


def calls_in(path: Path) -> set[str]:
    return {
        f"{node.value.id}.{node.attr}"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_clocks_are_read_in_one_place_and_nothing_is_random(path: Path) -> None:
    clocks = {
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "time.time",
        "time.monotonic",
    }
    if path != PACKAGE / "runtime" / "clock.py":
        assert not calls_in(path) & clocks
    assert not {name.split(".")[0] for name in imports_of(path)} & {"random", "secrets", "uuid"}


BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
)
MOST_BRANCHES, MOST_LINES = 20, 60


def too_large(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a reader needs two passes for it, and it does not say why it is in one piece."""
    inside = list(ast.walk(function))
    branches = 1 + sum(isinstance(node, BRANCHES) for node in inside)
    branches += sum(len(node.values) - 1 for node in inside if isinstance(node, ast.BoolOp))
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    excused = "n one piece because" in (ast.get_docstring(function) or "")
    return (branches > MOST_BRANCHES or lines > MOST_LINES) and not excused


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_function_is_read_in_one_pass(path: Path) -> None:
    functions = [
        node for node in nodes_of(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [function.name for function in functions if too_large(function)] == []


def test_a_large_function_is_found_unless_it_says_why() -> None:
    body = "".join(f"    if x == {number}: pass\n" for number in range(MOST_BRANCHES))
    assert too_large(ast.parse(f"def large(x):\n{body}").body[0])
    assert not too_large(ast.parse(f'def large(x):\n    "In one piece because."\n{body}').body[0])


def test_nothing_in_the_product_uses_the_testing_tools() -> None:
    users = [
        path
        for path in MODULES
        if any(name.startswith("cronpoll.testing") for name in imports_of(path))
    ]
    assert users == [PACKAGE / "pytest_plugin.py"]  # for tests of users, too
    simulated = [
        path
        for path in MODULES
        if room_of(path) != "runtime"
        and any("runtime.simulation" in name for name in imports_of(path))
    ]
    assert simulated == [
        PACKAGE / "cli" / "simulate.py",
        PACKAGE / "testing.py",
        PACKAGE / "web" / "demo.py",
    ]  # `cronpoll simulate`


@pytest.mark.parametrize(
    ("table", "initial"),
    [
        (machine.SCHEDULER, "uninitialized"),
        (machine.TASK, "awaiting-run"),
        (machine.POLLING, "inactive"),
    ],
    ids=["scheduler", "task", "polling"],
)
def test_the_diagrams_in_the_manual_are_those_of_the_tables(
    table: machine.Table, initial: str
) -> None:
    assert machine.mermaid(table, initial) in (PACKAGE / "manual" / "states.md").read_text()


def test_a_transition_that_is_not_in_the_table_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="cannot happen"):
        machine.step(machine.SCHEDULER, "stopped", "stop() called")


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.endswith("-m pytest")
    ]
    assert len(commands) == 1
    assert commands[0] in script.splitlines()
