"""The agent: a model that calls tools until it has nothing more to do (spec 07 is not at hand; see README.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from examples.mail_assistant import labels
from examples.mail_assistant.app import Desk
from examples.mail_assistant.drafting import move_labels, replace_draft
from examples.mail_assistant.gmail import Mail
from examples.mail_assistant.llm import Completion, Message, ToolCall

ORDERS = {"1001": "sent on Monday", "1002": "waiting for the prescription"}
"""What a pharmacy's own system would say."""


def lookup_order(desk: Desk, mail: Mail, order_id: str) -> str:
    return ORDERS.get(order_id, "unknown order")


def reply(desk: Desk, mail: Mail, body: str) -> str:
    """Leaves a draft: the user sends it."""
    draft_id = replace_draft(desk, mail, body)
    move_labels(desk, mail.thread_id, add=[labels.OUTBOX], remove=[])
    return draft_id


def escalate(desk: Desk, mail: Mail, reason: str) -> str:
    move_labels(desk, mail.thread_id, add=[labels.ACTION_REQUIRED], remove=[])
    return f"a human will look at it: {reason}"


def parse_crisp(mail: Mail) -> Mail:
    """The Crisp helpdesk forwards what a customer wrote: the answer goes to the customer, and is about those words."""
    found = re.match(r"Forwarded by Crisp\nCustomer: (?P<sender>\S+)\n\n(?P<body>.*)", mail.body, re.DOTALL)
    return replace(mail, sender=found["sender"], body=found["body"].strip()) if found else mail


@dataclass(frozen=True)
class Profile:
    prompt: str
    tools: tuple[Callable[..., str], ...]
    preprocess: Callable[[Mail], Mail] = lambda mail: mail
    max_iterations: int = 6


PROFILES = {
    "pharmacy": Profile("You answer customers of a pharmacy.", (lookup_order, reply, escalate), parse_crisp)
}


class AgentResult(BaseModel):
    status: str
    """completed, or max_iterations."""
    tool_calls: list[dict[str, Any]]
    iterations: int
    final_message: str


def run_agent(desk: Desk, profile: Profile, mail: Mail, thread: list[Mail]) -> AgentResult:
    """Every call of the model and of a tool is a step: a run that is taken over goes on where the last one was, and
    neither pays twice nor acts twice."""
    earlier = "\n---\n".join(other.body for other in thread if other.id != mail.id)
    text = f"From: {mail.sender}\nSubject: {mail.subject}\n\n{mail.body}\n\nEarlier:\n{earlier}"
    messages: list[Message] = [
        {"role": "system", "content": profile.prompt},
        {"role": "user", "content": text},
    ]
    used: list[dict[str, Any]] = []
    for iteration in range(1, profile.max_iterations + 1):
        answer = desk.ctx.step(f"model {iteration}", _ask, desk, profile, mail, messages)
        if not answer.tool_calls:
            return AgentResult(
                status="completed", tool_calls=used, iterations=iteration, final_message=answer.text
            )
        messages.append(_said(answer))
        for number, call in enumerate(answer.tool_calls, 1):
            name = f"tool {iteration}.{number} {call.name}"
            result = desk.ctx.step(name, _use, desk, profile, mail, call)
            used.append({"name": call.name, "arguments": call.arguments, "result": result})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return AgentResult(
        status="max_iterations", tool_calls=used, iterations=profile.max_iterations, final_message=""
    )


def _ask(desk: Desk, profile: Profile, mail: Mail, messages: list[Message]) -> Completion:
    return desk.llm.complete("agent", mail.thread_id, messages, [_described(tool) for tool in profile.tools])


def _use(desk: Desk, profile: Profile, mail: Mail, call: ToolCall) -> str:
    """A tool that the model has made up is an answer to the model, not an error of the job."""
    tool = next((tool for tool in profile.tools if tool.__name__ == call.name), None)
    return f"there is no tool {call.name}" if tool is None else tool(desk, mail, **call.arguments)


def _described(tool: Callable[..., str]) -> dict[str, Any]:
    names = [name for name in tool.__annotations__ if name not in ("desk", "mail", "return")]
    parameters = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names,
    }
    return {"type": "function", "function": {"name": tool.__name__, "parameters": parameters}}


def _said(answer: Completion) -> Message:
    """The model's own message, as it wants to read it again."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in answer.tool_calls
    ]
    return {"role": "assistant", "content": answer.text, "tool_calls": calls}
