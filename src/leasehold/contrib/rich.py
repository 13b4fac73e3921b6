"""Rich: `from leasehold.contrib.rich import Progress`. Reports a job's progress instead of drawing it.

with Progress(ctx=ctx) as progress:                     # everything else as in rich.progress
    for page in progress.track(pages, description="pages"): ...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from rich import progress as rich
from rich.progress import ProgressColumn, TaskID

from leasehold import Context, SyncContext

__all__ = ["Progress"]

T = TypeVar("T")


class Progress(rich.Progress):
    """Give it the handler's `ctx`. Without `ctx` it is a plain display, for code that also runs outside of jobs. A job
    has one progress: of several tasks, that of the oldest unfinished one. A stop ends `track` before the next item."""

    def __init__(
        self, *columns: str | ProgressColumn, ctx: Context | SyncContext | None = None, **options: Any
    ) -> None:
        self._ctx = ctx
        if ctx is not None:
            # Rich still counts without drawing, but only without its drawing thread.
            options |= {"disable": True, "auto_refresh": False}
        super().__init__(*columns, **options)

    def add_task(self, *args: Any, **options: Any) -> TaskID:
        made = super().add_task(*args, **options)
        self._report()
        return made

    def update(self, *args: Any, **options: Any) -> None:
        super().update(*args, **options)
        self._report()

    def advance(self, *args: Any, **options: Any) -> None:
        super().advance(*args, **options)
        self._report()

    def track(self, sequence: Iterable[T], *args: Any, **options: Any) -> Iterable[T]:
        for item in super().track(sequence, *args, **options):
            if self._ctx is not None:
                self._ctx.raise_if_stopped()
            yield item

    def _report(self) -> None:
        if self._ctx is None:
            return
        tasks = [task for task in self.tasks if task.visible]
        shown = next((task for task in tasks if not task.finished), tasks[-1] if tasks else None)
        if shown is not None:
            self._ctx.progress(shown.completed, shown.total, shown.description)
