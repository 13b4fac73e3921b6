"""One call of `ctx.step`, checked before anything runs."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any, Literal

from leasehold.domain.checks.names import checked_name
from leasehold.domain.errors import InvalidInput, LeaseLost, OverBudget
from leasehold.domain.policy import Policy, backoff_delay
from leasehold.domain.signals import Signal
from leasehold.run.budgets import Spender
from leasehold.tasks.codec import Codec, return_hint
from leasehold.tasks.settings import Retry, TaskSettings

Durability = Literal["each", "batch"]


class Step(Spender):
    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        durable: Durability,
        retry: Retry | None,
        tx: bool,
    ) -> None:
        super().__init__()
        self.name = checked_name(name, "step")
        if not callable(function):
            raise InvalidInput(
                "step", f"{function!r} cannot be called", "give the function, then its arguments"
            )
        if durable not in ("each", "batch"):
            raise InvalidInput("durable", f"{durable!r} is not known", "use 'each' or 'batch'")
        if tx and durable == "batch":
            raise InvalidInput(
                "durable", "cannot be 'batch' with tx=True", "a transaction commits its own step: use 'each'"
            )
        if tx and inspect.iscoroutinefunction(function):
            raise InvalidInput(
                "tx", f"{name!r} is an async function", "give a plain one: it runs in a thread"
            )
        self.function = function
        self.args = args
        self.batch = durable == "batch"
        self.tx = tx
        self.tries = 0
        """Tries that have failed."""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        self._retry = retry
        self._policy: Policy | None = None if retry is None else TaskSettings(retry=retry).policy()
        field = f"step {name!r}"
        self._codec = Codec(return_hint(function, field), field)

    def pack(self, value: Any) -> tuple[str, Any]:
        """Return the value as it is stored, and as the handler gets it. It is decoded before it is stored: a value that
        does not fit its annotation would not fit it in the next attempt either."""
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidInput(
                "step",
                f"{self.name!r} returned a coroutine",
                "give the async function itself, then its arguments",
            )
        return self._codec.pack(value)

    def decode(self, text: str) -> Any:
        return self._codec.decode(text)

    def delay_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        self.tries += 1
        if self._retry is None or self._policy is None or isinstance(error, Signal | LeaseLost | OverBudget):
            return None
        if self.tries >= self._policy.max_attempts or not self._retry.covers(error):
            return None
        return backoff_delay(self._policy, self.tries, random.random())
