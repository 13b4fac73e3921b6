"""Workers as they tell of themselves, and what stands in which lane: what `why`, `lanes` and `queues` show."""

from __future__ import annotations

import json
from typing import Any

from leasehold.domain.states import State
from leasehold.domain.views import LaneHolder, WorkerCard
from leasehold.stores.verbs.writing import Verbs

SILENT_AFTER = 45.0
"""A worker tells of itself every 10 seconds; one that was silent for longer than this is not counted on."""


class WorkerVerbs(Verbs):
    def beat_worker(self, card: WorkerCard) -> None:
        self._database.single(
            lambda session: session.run(
                "beat_worker",
                owner=card.owner,
                queues=json.dumps(card.queues),
                kinds=json.dumps(card.kinds),
                sites=json.dumps(card.sites),
                concurrency=card.concurrency,
                running=card.running,
                draining=card.draining,
                version=card.version,
            )
        )

    def forget_worker(self, owner: str) -> None:
        self._database.single(lambda session: session.run("forget_worker", owner=owner))

    def forget_silent_workers(self, age: float = 3600.0) -> None:
        self._database.single(lambda session: session.run("forget_silent_workers", age=age))

    def list_workers(self, age: float = SILENT_AFTER) -> list[WorkerCard]:
        rows = self._database.read(lambda session: session.rows("list_workers", age=age))
        return [_card(row) for row in rows]

    def list_lanes(self, limit: int = 500) -> list[LaneHolder]:
        rows = self._database.read(lambda session: session.rows("list_lanes", limit=limit))
        return [LaneHolder(**{**row, "state": State(row["state"])}) for row in rows]

    def list_gates(self) -> list[tuple[str, str]]:
        rows = self._database.read(lambda session: session.tuples("list_gates"))
        return [(queue, kind) for queue, kind in rows]

    def lane_front(self, lane: str) -> tuple[str | None, str | None]:
        row = self._database.read(lambda session: session.rows("find_lane_head", lane=lane))[0]
        return row["head"], row["blocker"]


def _card(row: dict[str, Any]) -> WorkerCard:
    texts = {name: tuple(json.loads(row[name])) for name in ("queues", "kinds", "sites")}
    return WorkerCard(**{**row, **texts})
