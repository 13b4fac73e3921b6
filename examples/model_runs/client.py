"""A small client of the API, for `show` and the tests."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from .processes import PATIENCE, until


class Client:
    def __init__(self, url: str) -> None:
        self._url = url

    def trigger(self, model: str = "mock", seconds: float = 1.0) -> str:
        """The id of the new run."""
        body = json.dumps({"model": model, "seconds": seconds}).encode()
        return str(self._ask("/runs", body)["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        return self._ask(f"/runs/{run_id}", None)

    def wait(self, run_id: str, *statuses: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """Its row of the view `model_runs`, once it has one of these statuses."""

        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["status"] in statuses else None

        try:
            found: dict[str, Any] = until(look, f"run {run_id} is {' or '.join(statuses)}", seconds)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; it is {self.run(run_id)}") from None
        return found

    def _ask(self, path: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            told: dict[str, Any] = json.load(answer)
        return told
