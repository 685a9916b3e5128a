"""How the starts of a day fall, bin by bin: as cron would have them, and with windows. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from cronpoll.core.calendar import AnySchedule
from cronpoll.core.model import MICROSECOND
from cronpoll.core.periods import Seed
from cronpoll.core.windows import PeriodSchedule

BINS: Final = 48
"""Half hours of a day."""


def counted(
    schedules: list[AnySchedule], hosts: int, begin: datetime, bins: int = BINS
) -> tuple[list[int], list[int], int]:
    """Starts per bin of the day that begins at `begin`: nominal, chosen; and how many periods have
    no time."""
    before, after, lost = [0] * bins, [0] * bins, 0
    end = begin + timedelta(days=1)

    def bin_of(moment: datetime) -> int:
        return int((moment - begin) / timedelta(days=1) * bins)

    # Tasks with one expression share its schedule: it is counted once, times their number.
    plain = {id(each.nominals): each.nominals for each in schedules}
    due = Counter(id(each.nominals) for each in schedules)
    unmoved = Counter(id(each.nominals) for each in schedules if not each.windowed)
    for key, nominals in plain.items():
        nominal = nominals.next_after(begin - MICROSECOND)
        while nominal is not None and nominal < end:
            before[bin_of(nominal)] += hosts * due[key]
            after[bin_of(nominal)] += hosts * unmoved[key]
            nominal = nominals.next_after(nominal)
    for schedule in schedules:
        if not isinstance(schedule, PeriodSchedule):
            continue
        for host in range(hosts):
            here = schedule if hosts == 1 else _on_host(schedule, host)
            for choice in here.from_nominal(begin - here.reach()[1]):
                if choice.window_start >= end:
                    break
                if begin <= choice.settles_at < end:
                    if choice.chosen_at is None:
                        lost += 1
                    else:
                        after[bin_of(choice.chosen_at)] += 1
    return before, after, lost


def _on_host(schedule: PeriodSchedule, number: int) -> PeriodSchedule:
    seed = schedule.spread.seed
    return schedule._replace(
        spread=replace(schedule.spread, seed=Seed(seed.strategy, f"{seed.salt}{number}"))
    )
