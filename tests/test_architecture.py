"""Who may import whom, where clocks are read, and that no chance enters: the walls of the house."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import cronpoll
from cronpoll.core import machine

PACKAGE = Path(cronpoll.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each room and what it may import of the package, besides itself. The order is the direction of the imports.
ALLOWED = {
    "core": set(),
    "store": {"core"},
    "config": {"core"},
    "runtime": {"core", "store", "config"},
    "daemon": {"core", "store", "config", "runtime", "__version__"},
    "cli": {"core", "store", "config", "runtime", "daemon", "__version__"},
    "testing": {"core", "store", "runtime"},
    "__init__": {"core", "store", "runtime"},
    "__main__": {"cli"},
}
# Packages from outside, by room.
OUTSIDE = {
    "core": {"msgspec"},
    "store": {"msgspec", "psutil"},
    "config": {"msgspec"},
    "runtime": {"msgspec", "psutil", "structlog"},
    "daemon": {"click", "daemon", "psutil", "watchfiles"},
    "cli": {"click", "msgspec", "psutil", "rich", "tomli_w"},
    "testing": set(),
    "__init__": set(),
    "__main__": set(),
}
PURE = {"asyncio", "logging", "os", "io", "socket", "subprocess", "threading", "time", "random", "secrets", "pathlib"}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
            target = rest[0] if rest else "__init__"
            if target != room and target not in ALLOWED[room]:
                wrong.append(name)
        elif (first not in sys.stdlib_module_names and first not in OUTSIDE[room]) or (
            room == "core" and first in PURE
        ):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    assert violations(path) == []


def test_the_check_itself_finds_a_wrong_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core").mkdir()
    stranger = tmp_path / "core" / "stranger.py"
    stranger.write_text(
        "import asyncio\nimport requests\nfrom cronpoll.runtime import engine\nfrom datetime import date\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert sorted(violations(stranger)) == ["asyncio", "cronpoll.runtime.engine", "requests"]


def calls_in(path: Path) -> set[str]:
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_clocks_are_read_in_one_place_and_nothing_is_random(path: Path) -> None:
    clocks = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time", "time.monotonic"}
    if path != PACKAGE / "runtime" / "clock.py":
        assert not calls_in(path) & clocks
    assert not {name.split(".")[0] for name in imports_of(path)} & {"random", "secrets", "uuid"}


BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension)
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
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [function.name for function in functions if too_large(function)] == []


def test_a_large_function_is_found_unless_it_says_why() -> None:
    body = "".join(f"    if x == {number}: pass\n" for number in range(MOST_BRANCHES))
    assert too_large(ast.parse(f"def large(x):\n{body}").body[0])
    assert not too_large(ast.parse(f'def large(x):\n    "In one piece because."\n{body}').body[0])


def test_nothing_in_the_product_uses_the_testing_tools() -> None:
    users = [path for path in MODULES if any(name.startswith("cronpoll.testing") for name in imports_of(path))]
    assert users == []
    simulated = [path for path in MODULES if any("runtime.simulated" in name for name in imports_of(path))]
    assert simulated == [PACKAGE / "cli" / "ahead.py", PACKAGE / "testing.py"]  # `cronpoll simulate`


def test_importing_the_package_does_not_import_the_log_renderer() -> None:
    import subprocess

    code = "import sys, cronpoll; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("table", "initial"),
    [(machine.SCHEDULER, "uninitialized"), (machine.TASK, "awaiting-run"), (machine.POLLING, "inactive")],
    ids=["scheduler", "task", "polling"],
)
def test_the_diagrams_in_the_readme_are_those_of_the_tables(table: machine.Table, initial: str) -> None:
    assert machine.mermaid(table, initial) in (ROOT / "README.md").read_text()


def test_a_transition_that_is_not_in_the_table_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="cannot happen"):
        machine.step(machine.SCHEDULER, "stopped", "stop() called")


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.endswith("-m pytest")]
    assert len(commands) == 1
    assert commands[0] in script.splitlines()
