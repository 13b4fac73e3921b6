"""The classification engine: rules first, then the model."""

from __future__ import annotations

import json
from fnmatch import fnmatch

from pydantic import BaseModel

from examples.mail_assistant.app import Desk
from examples.mail_assistant.gmail import Mail
from examples.mail_assistant.labels import BY_CLASSIFICATION

AUTOMATED = ("noreply@*", "no-reply@*", "newsletter@*")
PROMPT = (
    'Classify this e-mail. Answer with JSON: {"classification": …, "reasoning": …}; the classification is one of '
    + ", ".join(BY_CLASSIFICATION)
)


class Verdict(BaseModel):
    classification: str
    reasoning: str


def classify_mail(desk: Desk, mail: Mail) -> Verdict:
    """An answer that cannot be read raises, and the job is tried again."""
    if any(fnmatch(mail.sender, pattern) for pattern in desk.user.settings["blacklist"]):
        return Verdict(classification="fyi", reasoning="the sender is on the blacklist")
    if any(fnmatch(mail.sender, pattern) for pattern in AUTOMATED):
        return Verdict(classification="fyi", reasoning="sent by a machine")
    form = f"From: {mail.sender}\nSubject: {mail.subject}\n\n{mail.body}"
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": form}]
    answer = desk.llm.complete("classify", mail.thread_id, messages)
    verdict = Verdict.model_validate(json.loads(answer.text))
    if verdict.classification not in BY_CLASSIFICATION:
        raise ValueError(f"the model says {verdict.classification!r}")
    return verdict
