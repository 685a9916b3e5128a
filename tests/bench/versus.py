"""This tree beside another commit, ours alone: is it as fast and as small as it was?

    python -m tests.bench.versus COMMIT [--rounds N] [--only FAMILY]

Each figure is measured in fresh processes that take turns, old and new, so that what the machine
does meanwhile hits both. The best round of each counts, because all that disturbs makes it slower;
times are of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict

from tests.bench.measure import ROOT, say

# What a process measures, in the tree that it finds itself in. It prints one JSON object.
MEASURES = {
    "burst": """
from tests.bench import burst
wall, cpu = defaultdict(list), defaultdict(list)
asyncio.run(burst._ours(20_000, burst.noon(), wall, cpu))
found = {"cpu per task": cpu[burst.LAST][0]}
""",
    "initialize": """
from tests.bench import initialize
result = initialize.Results()
asyncio.run(initialize._ours(50_000, initialize.mix(), result))
found = {"cpu per task": result.cpu["ours"][0]}
""",
    "idle_poll": """
from tests.bench import idle_poll
rows = asyncio.run(idle_poll._measured((1_000, 20_000), 5))
found = {row.case: min(row.rounds["ours"]) for row in rows}
""",
    "growth": """
from tests.bench import growth
found = {}
for kind in ("plain", "windows"):
    figures = asyncio.run(growth._ours(kind, 20_000, 1_000))
    found |= {f"{kind}, {figure}": figures[figure] for figure in ("initialize", "idle poll", "due poll")}
""",
    "memory": """
from tests.bench import memory
found = {"bytes per task": asyncio.run(memory._measure("ours", 50_000, "tracemalloc"))["bytes"] / 50_000}
""",
    # Written anew in each tree: who judges understands the journals of its own version.
    "audit": """
import tempfile, time
from cronpoll import Registration, Spread, Window
from tests.bench import auditing, record
mixed, found = record.tasks, {}
for kind, spread in (("plain", None), ("windows", Spread(window=Window("after", 1_200_000)))):
    record.tasks = lambda number, *_, spread=spread: [
        Registration(*one[:4], spread=spread)
        for one in ((t.name, t.cron, t.callback, t.retry_delay) for t in mixed(number))
    ]
    with tempfile.TemporaryDirectory() as directory:
        record.write(directory, 200, 48)
        spent = []
        for _ in range(3):
            began = time.process_time()
            report = auditing._audited(directory).report()
            spent.append((time.process_time() - began) / report.events * 1e6)
        assert report.clean
    found[f"{kind}, µs per event"] = min(spent)
""",
}
_PREFACE = "import asyncio, json\nfrom collections import defaultdict\n"


def measured(tree: str, family: str) -> dict[str, float]:
    code = f"{_PREFACE}{MEASURES[family]}\nprint(json.dumps(found))"
    surroundings = {**os.environ, "PYTHONPATH": tree}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=surroundings, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.versus")
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=MEASURES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cronpoll-versus-") as old:
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "-q", "--detach", old, options.commit],
            check=True,
        )
        try:
            compare(old, options.rounds, [options.only] if options.only else list(MEASURES))
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", old], check=True)


def compare(old: str, rounds: int, families: list[str]) -> None:
    for family in families:
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"old": [], "new": []})
        for number in range(rounds):
            say(f"  {family}, round {number + 1}")
            for side, tree in (
                (("old", old), ("new", ROOT)) if number % 2 else (("new", ROOT), ("old", old))
            ):
                for figure, value in measured(tree, family).items():
                    figures[figure][side].append(value)
        for figure, sides in figures.items():
            before, after = min(sides["old"]), min(sides["new"])
            print(
                f"{family}, {figure}: {before:.2f} -> {after:.2f}, {after / before:.3f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
