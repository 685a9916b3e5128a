"""Runs the families, prints the table, writes JSON, table and plot. Exits with 0 whatever the
numbers are."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from datetime import UTC, datetime
from time import perf_counter

import cronpoll
from tests.bench import (
    auditing,
    burst,
    cold_start,
    decisions,
    growth,
    idle_cpu,
    idle_poll,
    initialize,
    journaling,
    large_file,
    latency,
    memory,
    next_after,
    output,
    pages,
    parsing,
    simulated_year,
    workload,
)
from tests.bench.measure import Row, say
from tests.bench.peers import PEERS, version_of
from tests.bench.plot import svg
from tests.bench.report import markdown

FAMILIES = {
    "next_after": next_after.run,
    "parse": parsing.run,
    "initialize": initialize.run,
    "idle_poll": idle_poll.run,
    "burst": burst.run,
    "memory": memory.run,
    "cold_start": cold_start.run,
    "decide": decisions.run,
    "journal": journaling.run,
    "audit": auditing.run,
    "growth": growth.run,
    "idle_cpu": idle_cpu.run,
    "latency": latency.run,
    "pages": pages.run,
    "large_file": large_file.run,
    "output": output.run,
    "simulate": simulated_year.run,
}
NAME = "benchmark"


def machine() -> dict:
    with open("/proc/cpuinfo") as file:
        models = {line.partition(":")[2].strip() for line in file if line.startswith("model name")}
    return {
        "system": platform.platform(),
        "processor": ", ".join(sorted(models)) or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "journal_on": _file_system(tempfile.gettempdir()),
    }


def _file_system(path: str) -> str:
    """Kind of the file system that holds `path`: an fsync on a memory disk would say nothing."""
    with open("/proc/mounts") as file:
        mounts = [line.split()[1:3] for line in file]
    there = os.path.realpath(path)
    holding = [
        (point, kind) for point, kind in mounts if os.path.commonpath([there, point]) == point
    ]
    return " ".join(max(holding, key=lambda mount: len(mount[0]), default=(path, "unknown")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny sizes, to see that everything runs"
    )
    parser.add_argument("--only", choices=FAMILIES, help="one family")
    parser.add_argument(
        "--output",
        metavar="DIR|FILE.json",
        help=f"where to write {NAME}.json, {NAME}.md and {NAME}.svg, or FILE.*",
    )
    options = parser.parse_args()

    rows: list[Row] = []
    loads: dict[str, list[float]] = {}
    began = perf_counter()
    for name, family in FAMILIES.items():
        if options.only in (None, name):
            say(f"{name} ({perf_counter() - began:.0f} s)")
            before = os.getloadavg()[0]
            rows += family(options.smoke)
            loads[name] = [before, os.getloadavg()[0]]
    checks = [check for row in rows for check in row.checks if check.bound is not None]
    result = {
        "benchmark": "cronpoll",
        "at": datetime.now(UTC).isoformat(),
        "smoke": options.smoke,
        "seconds": perf_counter() - began,
        "machine": machine(),
        "load_average_before_and_after": loads,
        "python": platform.python_version(),
        "versions": {
            "cronpoll": cronpoll.__version__,
            **{peer: version_of(peer) for peer in PEERS},
        },
        "workload": " ".join((workload.__doc__ or "").split()),
        "targets": {"total": len(checks), "reached": sum(bool(check.reached) for check in checks)},
        "rows": [row.as_json() for row in rows],
    }
    table = markdown(result)
    if options.output:
        write(
            options.output, {"json": json.dumps(result, indent=1), "md": table, "svg": svg(result)}
        )
    print(table)


def write(output: str, contents: dict[str, str | None]) -> None:
    """One file per kind of content, side by side. A picture of nothing is not written."""
    base, extension = os.path.splitext(output)
    if extension != ".json":
        base = os.path.join(output, NAME)
    os.makedirs(os.path.dirname(base) or ".", exist_ok=True)
    for kind, content in contents.items():
        if content is not None:
            with open(f"{base}.{kind}", "w") as file:
                file.write(content.rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
