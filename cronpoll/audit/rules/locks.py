"""Locks: that tasks which share one never run at the same time."""

from __future__ import annotations

from typing import Final

from cronpoll.audit import promises as p
from cronpoll.audit.facts import Facts, Task
from cronpoll.audit.rules.finding import Found, rule, unless
from cronpoll.core import events as e


def lock_is_free(facts: Facts, task: Task, _: e.TaskRunStarted) -> Found | None:
    lock = task.config.options.lock
    if lock is None:
        return None
    holder = facts.lock_holder(task, surely=True)
    return unless(holder is None, p.LOCKS, f'started while {holder} held the lock "{lock}"')


START: Final = (rule(lock_is_free, p.LOCKS, rare=True),)
