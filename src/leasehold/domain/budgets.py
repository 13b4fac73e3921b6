"""Budgets: what a job and its group may spend, unit by unit, and what has been spent.

Amounts are whole numbers: sums of fractions drift, and a ledger must be exact to the unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast, get_args

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen, shown
from leasehold.domain.policy import OnBreach, Policy

BudgetScope = Literal["job", "attempt", "group"]
BudgetOwner = Literal["job", "group"]

LARGEST_AMOUNT = 10**15
"""Upper bound of one amount. Thousands of such amounts still fit into the databases' integers."""
LONGEST_KEY = 200


@frozen
class Spend:
    """An amount to write to the ledger. Amounts with the same key and unit count once."""

    key: str
    unit: str
    amount: int


@frozen
class Spending:
    """A row of the ledger: the amount spent, and the lease it was spent under."""

    key: str
    unit: str
    amount: int
    token: int
    attempt: int
    at: datetime


@frozen
class BudgetLine:
    """Limit and spending in one unit, of a job, of its present attempt (`budget_for="attempt"`), or of its group."""

    scope: BudgetScope
    name: str
    """The job's id, or the group's name."""
    unit: str
    limit: int | None
    """None: no limit."""
    spent: int

    @shown
    def left(self) -> int | None:
        """What may still be spent: never below 0, None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.spent)

    @shown
    def exhausted(self) -> bool:
        """Whether more than the limit was spent; spending exactly the limit is allowed."""
        return self.limit is not None and self.spent > self.limit

    def describe(self) -> str:
        """Format the line as a sentence for people."""
        whose = {"job": "its", "attempt": "its attempt's"}.get(self.scope, f"group {self.name!r}'s")
        return f"{self.spent:,} of {whose} {self.limit or 0:,} {self.unit} are spent"


@frozen
class BudgetRow:
    """A budget line as a list shows it, with the task and queue of its job."""

    scope: BudgetScope
    name: str
    """The job's id, or the group's name."""
    unit: str
    limit: int | None
    spent: int
    left: int | None
    """What may still be spent: never below 0, None without a limit."""
    exhausted: bool
    """More than the limit was spent; spending exactly the limit is allowed."""
    on_breach: OnBreach | None
    """What happens to the job when it is over its budget. None for a group: each of its jobs has its own setting."""
    task: str | None
    queue: str | None

    @classmethod
    def of(
        cls, line: BudgetLine, on_breach: OnBreach | None, task: str | None, queue: str | None
    ) -> BudgetRow:
        """Build a row from one line of a job or group."""
        return cls(
            *(line.scope, line.name, line.unit, line.limit, line.spent, line.left, line.exhausted),
            *(on_breach, task, queue),
        )


@frozen
class BudgetPage:
    """One page of budgets."""

    budgets: list[BudgetRow]
    next: str | None
    """The cursor of the next page; None at the end."""


def checked_owner(scope: object) -> BudgetOwner | None:
    if scope is None:
        return None
    if scope not in get_args(BudgetOwner):
        raise InvalidInput("scope", f"{scope!r} has no budgets", "use job or group")
    return cast(BudgetOwner, scope)


def lines_of(
    job_id: str,
    policy: Policy,
    group: str | None,
    rows: Iterable[Mapping[str, Any]],
    of_attempt: Mapping[str, int] | None = None,
) -> list[BudgetLine]:
    """Return the lines of a job and its group. A limit stored in a row was set later than the task's and wins.
    `of_attempt` is what the present attempt has spent, if the limits are per attempt."""
    found = {(row["scope"], row["unit"]): row for row in rows}
    given = policy.budget or {}
    units = [("job", unit) for unit in given]
    lines = []
    for scope, unit in sorted({*found, *units}, key=lambda one: (one[0] != "job", one[1])):
        row = found.get((scope, unit), {"lim": None, "spent": 0})
        if scope == "job":
            limit = given.get(unit) if row["lim"] is None else row["lim"]
            if of_attempt is None:
                lines.append(BudgetLine("job", job_id, unit, limit, row["spent"]))
            else:
                lines.append(BudgetLine("attempt", job_id, unit, limit, of_attempt.get(unit, 0)))
        else:
            lines.append(BudgetLine("group", group or "", unit, row["lim"], row["spent"]))
    return lines


def first_over(lines: Iterable[BudgetLine]) -> BudgetLine | None:
    return next((line for line in lines if line.exhausted), None)


def halts(policy: Policy) -> bool:
    """Return whether a breach ends the attempt; with `on_breach="allow"` the job checks what is left and goes on."""
    return policy.on_breach != "allow"


def checked_amounts(amounts: object, field: str) -> dict[str, int]:
    """Return units and whole amounts, or raise an error that names the unit."""
    if not isinstance(amounts, Mapping) or not amounts:
        example = 'budget={"tokens": 1200}' if field == "budget" else "tokens=1200"
        raise InvalidInput(field, "names no unit", f"give units and amounts, such as {example}")
    return {checked_unit(unit): checked_amount(unit, amount) for unit, amount in amounts.items()}


def checked_limits(limits: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return limits by unit. None removes the limit of its unit."""
    given = {unit: limit for unit, limit in limits.items() if limit is not None}
    return {
        **{checked_unit(unit): None for unit in limits},
        **(checked_amounts(given, "budget") if given or not limits else {}),
    }


def checked_unit(unit: object) -> str:
    if not isinstance(unit, str) or not unit.strip() or len(unit) > LONGEST_KEY:
        raise InvalidInput(
            "unit", f"{unit!r} is not a unit", f"give a text of at most {LONGEST_KEY} characters"
        )
    return check_text(unit, "unit")


def checked_amount(unit: str, amount: object) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise InvalidInput(
            unit,
            f"{amount!r} is not a whole number",
            "count in the smallest unit: cents, tokens, milliseconds",
        )
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidInput(unit, f"{amount} is out of range", f"give 0 to {LARGEST_AMOUNT:,}")
    return amount


def total(spends: Sequence[Spend], unit: str) -> int:
    return sum(spend.amount for spend in spends if spend.unit == unit)
