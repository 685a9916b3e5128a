"""Tools to test a task set: a clock that jumps, a disk that fails, processes that die. Nothing in
the product uses this.

from datetime import timedelta
from cronpoll.testing import World, run

async def scenario() -> None:
    world = World("2026-03-29T00:00:00Z", zone="Europe/Berlin")
    await world.boot([("report", "30 2 * * *", make_report, timedelta(minutes=5))])
    await world.passes(days=2)
    assert world.starts("report") == ["2026-03-30T00:30:00Z"]     # 02:30 does not exist on the 29th

run(scenario)
"""

from cronpoll.runtime.simulation.disk import SimulatedCrashError, SimulatedDisk
from cronpoll.runtime.simulation.processes import SimulatedProcesses
from cronpoll.runtime.simulation.time import (
    SimulatedClock,
    SimulatedLoop,
    SimulationStuckError,
    instant,
    run,
)
from cronpoll.runtime.simulation.world import Recorder, SteppedWorld, World, through
from cronpoll.store.memory import MemoryStore

__all__ = [
    "MemoryStore",
    "Recorder",
    "SimulatedClock",
    "SimulatedCrashError",
    "SimulatedDisk",
    "SimulatedLoop",
    "SimulatedProcesses",
    "SimulationStuckError",
    "SteppedWorld",
    "World",
    "instant",
    "run",
    "through",
]
