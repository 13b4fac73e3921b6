"""`ctx.ask` and `ctx.ask_all`: park the job until the answers come; the same call returns them in a later attempt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from leasehold.domain.checks.json_schema import check_schema
from leasehold.domain.checks.payload import check_text, encode
from leasehold.domain.checks.texts import checked_name
from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import InvalidInput, QuestionExpired
from leasehold.domain.frozen import frozen
from leasehold.domain.questions import Question, QuestionAsked
from leasehold.domain.signals import Park
from leasehold.run.journal import Journal
from leasehold.run.state import RunState


@frozen
class Ask:
    """One of several questions for `ctx.ask_all`; its fields are the parameters of `ctx.ask`."""

    text: str
    schema: Any = None
    secret: bool = False
    timeout: Duration | None = None


Asks = Mapping[str, str | tuple[str, Any] | Ask]
"""By key: the text, the text and a schema, or an `Ask`."""


class CheckedAsk:
    """A question of a `ctx.ask` call, checked before anything is read."""

    def __init__(self, key: str, ask: Ask) -> None:
        checked_name(key, "key")
        text: object = ask.text
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("text", f"{text!r} is not a question", "say what you want to know")
        self._adapter, stored = _schema(ask.schema)
        limit = None if ask.timeout is None else seconds(ask.timeout, "timeout", positive=True)
        self.question = QuestionAsked(key, check_text(text, "text"), stored, bool(ask.secret), limit)

    def decoded(self, question: Question) -> tuple[Any, QuestionAsked | None]:
        """Return the answer, or the question to ask again, with the reason. An answer may fit the schema but not the
        type, because a schema checks less: it does not check dates, for example."""
        answer = question.answer or "null"
        if self._adapter is None:
            return json.loads(answer), None
        try:
            return self._adapter.validate_json(answer), None
        except ValidationError as error:
            why = "" if self.question.secret else f": {error.errors()[0]['msg']}"
            return None, replace(
                self.question, text=f"{self.question.text}\n(The last answer did not fit{why}.)"
            )


class QuestionBox:
    """The questions of one attempt. Tasks of a handler may ask in parallel: the first that leaves the handler ends the
    others, so it waits for reads under way, and all questions without an answer are opened together."""

    def __init__(self, attempt: RunState, journal: Journal) -> None:
        self._attempt = attempt
        self._journal = journal
        self._unanswered: dict[str, QuestionAsked] = {}
        self._looks: set[asyncio.Future[None]] = set()

    @property
    def outcome(self) -> QuestionAsked:
        """All questions that the job waits for from now on."""
        first, *others = self._unanswered.values()
        return replace(first, beside=tuple(others))

    async def find_async(self, calls: Sequence[CheckedAsk]) -> dict[str, Any]:
        look: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looks.add(look)
        try:
            return await self._journal.call(self.find, calls)
        except Park:
            self._looks.discard(look)
            if self._looks:
                await asyncio.wait(self._looks)
            raise
        finally:
            self._looks.discard(look)
            if not look.done():
                look.set_result(None)

    def find(self, calls: Sequence[CheckedAsk]) -> dict[str, Any]:
        """Return the answers by key. Otherwise leave the handler until the last one is answered or expired, or raise
        QuestionExpired if one was not answered in time."""
        self._attempt.refuse_after_completion("ask")
        answers: dict[str, Any] = {}
        expired: list[str] = []
        open_: list[QuestionAsked] = []
        for call in calls:
            question = self._read(call.question.key)
            again: QuestionAsked | None = None
            if question is None or not (question.answered or question.expired):
                again = call.question
            elif question.answered:
                answers[call.question.key], again = call.decoded(question)
            else:
                expired.append(call.question.key)
            self._unanswered.pop(call.question.key, None)
            if again is not None:
                open_.append(again)
        if open_:
            self._unanswered |= {question.key: question for question in open_}
            raise Park(*(question.key for question in open_))
        if expired:
            raise QuestionExpired(self._attempt.grant.id, expired[0])
        return answers

    def _read(self, key: str) -> Question | None:
        return self._attempt.patiently(lambda: self._journal.store.read_question(self._attempt.grant.id, key))


def checked_asks(asks: object) -> list[CheckedAsk]:
    if not isinstance(asks, Mapping):
        raise InvalidInput("questions", f"{asks!r} is not a mapping", "give texts, or Ask(…), by key")
    return [CheckedAsk(key, _ask(key, value)) for key, value in asks.items()]


def _ask(key: object, value: object) -> Ask:
    match value:
        case Ask():
            return value
        case str():
            return Ask(value)
        case (str() as text, schema):
            return Ask(text, schema)
        case _:
            raise InvalidInput(
                "questions",
                f"{key!r} is {value!r}",
                "give a text, a text and a schema, or Ask(text, schema, secret=…, timeout=…)",
            )


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


def is_park(error: BaseException) -> bool:
    """Return whether this is a Park, or a group that holds only Parks: a handler may ask in several tasks at once."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_park, error.exceptions))
    return isinstance(error, Park)
