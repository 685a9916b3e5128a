"""What others build from this checkout and run for themselves: the source archive with its own
tests, the hook for pre-commit, and the steps of the GitHub action.

All three install from the package index, which takes a while: behind the marker `booted`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.system.test_systemd import needs

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ("cronpoll", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
WRONG = '[[task]]\nname = "a"\ncron = "*/5 * * * *"\ncommand = ["true"]\n'
RIGHT = WRONG.replace("*/5", "0,30")
SECONDS = 600.0
"""Only there so that a broken test ends."""

pytestmark = pytest.mark.booted


def run(
    *command: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def done(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    result = run(*command, cwd=cwd, env=env)
    assert result.returncode == 0, result.stdout
    return result.stdout


def environment(directory: Path, *packages: str) -> Path:
    """The programs of a virtual environment with these packages."""
    done(sys.executable, "-m", "venv", directory, cwd=directory.parent)
    if packages:
        done(directory / "bin/pip", "install", "-q", *packages, cwd=directory.parent)
    return directory / "bin"


def copied(directory: Path) -> Path:
    """The program as it is in this checkout, without what git ignores."""
    directory.mkdir()
    for name in PROGRAM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, directory / name)
    return directory


def repository(directory: Path) -> str:
    """A git repository of what is there, and its one commit."""
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done("git", "init", "-q", ".", cwd=directory)
    done("git", "add", "-A", cwd=directory)
    done("git", *who, "commit", "-q", "-m", "all", cwd=directory)
    return done("git", "rev-parse", "HEAD", cwd=directory).strip()


def test_the_source_archive_passes_its_own_tests(tmp_path: Path) -> None:
    programs = environment(tmp_path / "build", "hatchling")
    done(programs / "hatchling", "build", "-t", "sdist", "-d", tmp_path / "dist", cwd=ROOT)
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (top,) = (tmp_path / "unpacked").iterdir()
    # Those rooms that read files of the checkout besides the package.
    rooms = ("tests/test_manual.py", "tests/test_architecture.py", "tests/system")
    output = done(
        sys.executable, "-m", "pytest", "-q", "-n", "2", *rooms,
        cwd=top, env={"PYTHONPATH": str(top)},
    )  # fmt: skip
    assert " passed" in output.splitlines()[-1], output


def test_the_hook_works_with_pre_commit(tmp_path: Path) -> None:
    needs("git")
    commit = repository(copied(tmp_path / "ours"))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / ".pre-commit-config.yaml").write_text(
        yaml.safe_dump(
            {
                "repos": [
                    {
                        "repo": str(tmp_path / "ours"),
                        "rev": commit,
                        "hooks": [{"id": "cronpoll-validate"}],
                    }
                ]
            }
        )
    )
    (theirs / "tasks.toml").write_text(WRONG)
    (theirs / "other.toml").write_text("this is not ours to check\n")
    repository(theirs)
    programs = environment(tmp_path / "tool", "pre-commit")
    here = {"PRE_COMMIT_HOME": str(tmp_path / "cache")}
    hook = (programs / "pre-commit", "run", "--all-files", "--color", "never")
    failed = run(*hook, cwd=theirs, env=here)
    assert failed.returncode == 1, failed.stdout
    assert "tasks.toml:3:8: task \"a\": cron: found '*/5 * * * *'" in failed.stdout
    assert "other.toml" not in failed.stdout
    (theirs / "tasks.toml").write_text(RIGHT)
    assert "cronpoll validate" in done(*hook, cwd=theirs, env=here)


def steps(inputs: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    """The shell steps of the action, with these inputs: script and environment."""

    def filled(text: str) -> str:
        for name, value in given.items():
            text = text.replace(f"${{{{ inputs.{name} }}}}", value)
        assert "${{" not in text
        return text

    action = yaml.safe_load((ROOT / "packaging/github-action/action.yml").read_text())
    given = {name: each.get("default", "") for name, each in action["inputs"].items()} | inputs
    found = [step for step in action["runs"]["steps"] if "run" in step]
    assert all(step["shell"] == "bash" and "${{" not in step["run"] for step in found)
    return [
        (step["run"], {key: filled(value) for key, value in step.get("env", {}).items()})
        for step in found
    ]


def test_the_steps_of_the_action_annotate_what_is_wrong(tmp_path: Path) -> None:
    top = copied(tmp_path / "ours")
    (top / "packaging").mkdir()
    shutil.copytree(ROOT / "packaging/github-action", top / "packaging/github-action")
    theirs = tmp_path / "theirs"
    (theirs / "etc").mkdir(parents=True)
    (theirs / "etc/tasks.toml").write_text(WRONG)
    (theirs / "tasks.toml").write_text(RIGHT)
    programs = environment(tmp_path / "python")
    path = f"{programs}:{os.environ['PATH']}"
    runner = {"PATH": path, "GITHUB_ACTION_PATH": str(top / "packaging/github-action")}
    # As the runner calls them: https://docs.github.com, "shell: bash".
    bash = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
    install, check = steps({})
    done(*bash, install[0], cwd=theirs, env=runner | install[1])
    done(*bash, check[0], cwd=theirs, env=runner | check[1])
    _, check = steps({"files": "tasks.toml etc/tasks.toml; touch broken"})
    failed = run(*bash, check[0], cwd=theirs, env=runner | check[1])
    assert failed.returncode != 0
    _, check = steps({"files": "tasks.toml etc/tasks.toml"})
    failed = run(*bash, check[0], cwd=theirs, env=runner | check[1])
    assert failed.returncode == 1
    assert "::error file=etc/tasks.toml,line=3,col=8" in failed.stdout
    assert not (theirs / "broken").exists()
