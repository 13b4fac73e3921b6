"""tqdm: `from leasehold.contrib.tqdm import tqdm`. Reports a job's progress instead of drawing it.

for page in tqdm(pages, desc="pages", ctx=ctx): ...     # everything else as in tqdm
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from tqdm.asyncio import tqdm_asyncio  # type: ignore[import-untyped] # tqdm has no types

from leasehold import Context, SyncContext

__all__ = ["tqdm"]


class tqdm(tqdm_asyncio):  # type: ignore[misc] # tqdm has no types
    """Give it the handler's `ctx`. Without `ctx` it is a plain bar, for code that also runs outside of jobs. Of nested
    bars, give `ctx` to the outer one: a job has one progress. A stop ends the loop before the next item."""

    def __init__(self, *args: Any, ctx: Context | SyncContext | None = None, **options: Any) -> None:
        self._ctx = ctx
        if ctx is not None:
            options["file"] = io.StringIO()  # only the end of a line is written
            # None means "not on a terminal", and this file never is one.
            options["disable"] = bool(options.get("disable"))
        super().__init__(*args, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        if self._ctx is None:
            return super().display(msg, pos)
        self._ctx.progress(_number(self.n), None if self.total is None else _number(self.total), self._note())
        return True

    def _note(self) -> str:
        return str(self.desc).removesuffix(": ")  # `set_description` adds the suffix

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self._check()
            yield item

    async def __anext__(self) -> Any:
        item = await super().__anext__()
        self._check()
        return item

    def _check(self) -> None:
        if self._ctx is not None:
            self._ctx.raise_if_stopped()


def _number(value: Any) -> float:
    """Convert a number, which may be one of numpy's."""
    return value if isinstance(value, int) else float(value)
