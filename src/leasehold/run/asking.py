"""`ctx.ask`: the handler leaves, the job waits, and a later run of it gets the answer at the same place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.json_schema import check_schema
from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.payload import check_text, encode
from leasehold.domain.errors import InvalidInput, QuestionExpired
from leasehold.domain.job import Question
from leasehold.domain.outcome import Asked
from leasehold.domain.signals import Park
from leasehold.run.state import RunState
from leasehold.stores.contract import Store


class Ask:
    """One call of `ctx.ask`, checked before anything is read."""

    def __init__(self, key: str, text: object, schema: Any, secret: bool, timeout: Duration | None) -> None:
        checked_name(key, "key")
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("text", f"{text!r} asks nothing", "say what you want to know")
        self._adapter, stored = _schema(schema)
        limit = None if timeout is None else seconds(timeout, "timeout", positive=True)
        self.asked = Asked(key, check_text(text, "text"), stored, bool(secret), limit)

    def find(self, run: RunState, store: Store) -> Any:
        """The answer; or the handler is left, or told that nobody has answered in time."""
        run.refuse_after_completion("ask")
        job_id, key = run.grant.id, self.asked.key
        question = run.patiently(lambda: store.read_question(job_id, key))
        if question is None or not (question.answered or question.expired):
            raise Park(self.asked)
        if question.answered:
            return self._decoded(question)
        raise QuestionExpired(job_id, key)

    def _decoded(self, question: Question) -> Any:
        """A schema says less than a type: it does not know what a date is. What fits the one and not the other is
        asked for again, with the reason."""
        answer = question.answer or "null"
        if self._adapter is None:
            return json.loads(answer)
        try:
            return self._adapter.validate_json(answer)
        except ValidationError as error:
            why = "" if self.asked.secret else f": {error.errors()[0]['msg']}"
            again = f"{self.asked.text}\n(The last answer did not fit{why}.)"
            raise Park(replace(self.asked, text=again)) from None


def _schema(schema: Any) -> tuple[TypeAdapter[Any] | None, str | None]:
    if schema is None:
        return None, None
    if isinstance(schema, Mapping):
        return None, encode(dict(check_schema(schema)), "schema")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(schema)
        found = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise InvalidInput(
            "schema",
            f"{schema!r} cannot be asked for ({error})",
            "give a type that pydantic knows, or a dict",
        ) from None
    return adapter, encode(dict(check_schema(found)), "schema")


def park_in(error: BaseException) -> Park | None:
    """Also out of a group: a handler may ask in several tasks at once."""
    if isinstance(error, Park):
        return error
    if isinstance(error, BaseExceptionGroup):
        asking, others = error.split(Park)
        if asking is not None and others is None:
            return park_in(asking.exceptions[0])
    return None
