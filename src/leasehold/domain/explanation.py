"""Explanations: every cause why a job runs or does not run, for programs and for people."""

from __future__ import annotations

from typing import Literal

from leasehold.domain.frozen import frozen

Cause = Literal[
    "resting",
    "budget",
    "group_held",
    "running",
    "orphan",
    "no_site",
    "pending",
    "parent",
    "waiting",
    "not_due",
    "queue_paused",
    "task_paused",
    "lane_blocked",
    "lane_order",
    "slot_full",
    "rate_closed",
    "rate_spent",
    "no_worker",
    "no_handler",
    "busy",
    "position",
    "nothing",
]


@frozen
class Hold:
    """One cause that holds a job back. `cause` is for programs, `detail` and `remedy` are for people."""

    cause: Cause
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.detail}; {self.remedy}" if self.remedy else self.detail


class Explanation(list[Hold]):
    """All causes in order; printed, one line each."""

    def __str__(self) -> str:
        return "\n".join(f"{number}. {hold}" for number, hold in enumerate(self, 1))
