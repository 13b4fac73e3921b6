"""Tells the hooks of questions."""

from __future__ import annotations

import json

from leasehold.domain.outcome import Asked
from leasehold.run.attempt import Attempt
from leasehold.stores.contract import Store
from leasehold.worker.hooks import QUESTION, HookCaller, HookEvent


class QuestionTeller:
    """Calls the hooks for questions, once a run of this worker has parked."""

    def __init__(self, store: Store, hooks: HookCaller) -> None:
        self._store = store
        self._hooks = hooks

    def tell(self, attempt: Attempt, asked: Asked) -> None:
        for question in asked.questions:
            self._tell(attempt, question)

    def _tell(self, attempt: Attempt, asked: Asked) -> None:
        grant = attempt.grant
        data = {
            "key": asked.key,
            "text": asked.text,
            "schema": None if asked.schema is None else json.loads(asked.schema),
            "secret": asked.secret,
            "group": grant.group_name,
        }
        event = HookEvent(QUESTION, grant.id, grant.kind, grant.queue, grant.attempt, asked.text, data)
        # A job that was cancelled meanwhile has ended without asking.
        self._hooks.call(event, lambda: self._store.read_question(grant.id, asked.key) is not None)
