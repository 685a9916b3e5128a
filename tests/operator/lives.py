"""Lives of the controller on a simulated API server: `python -m tests.operator.lives --seed 7` lives one
again and prints every write that reached the server; `--number 100` lives many."""

from __future__ import annotations

import argparse
from typing import Any

from cronpoll.testing import run
from tests.operator.simulated import Life, Operator, SimulatedServer

WRITES = ("create", "apply_status", "delete", "change_job")


def told(name: str) -> None:
    """Print every call of this method of the server."""
    original = getattr(SimulatedServer, name)

    def telling(self: SimulatedServer, *arguments: Any) -> Any:
        outcome = "done"
        try:
            return original(self, *arguments)
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            shown: Any = arguments[:3] if name != "create" else arguments[2]["metadata"]["name"]
            if name == "apply_status":
                runs = arguments[4].get("ledger", {}).get("runs", ())
                shown = (
                    arguments[1],
                    arguments[3],
                    [(each["job"], each.get("uid")) for each in runs],
                )
            print(f"{self.clock.wall():%H:%M:%S.%f}", name, shown, outcome)

    setattr(SimulatedServer, name, telling)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--minutes", type=int, default=12)
    given = parser.parse_args()
    if given.number == 1:
        for name in WRITES:
            told(name)
        start = Operator.start

        def telling(self: Operator, badness: float) -> None:
            start(self, badness)
            print(
                f"{self.life.clock.wall():%H:%M:%S.%f}",
                "start",
                f"operator-{self.number}-{self.lives}",
            )

        Operator.start = telling  # type: ignore[method-assign]
    for seed in range(given.seed, given.seed + given.number):
        run(Life(seed, minutes=given.minutes).run)
    print(f"{given.number} lives from seed {given.seed}: every promise was kept")


if __name__ == "__main__":
    main()
