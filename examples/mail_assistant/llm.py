"""The language model behind one small interface: an OpenAI-compatible server, or rules that need no network.

Messages and tools are written as OpenAI's chat API has them. `call_type` is for the log, and tells the rule model
what is wanted; a real model reads it from the messages.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import httpx2
from pydantic import BaseModel

from examples.mail_assistant.db import Database, now

Message = dict[str, Any]


class ToolCall(BaseModel):
    id: str
    name: str
    arguments: dict[str, Any]


class Completion(BaseModel):
    text: str
    tool_calls: list[ToolCall] = []
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Model(Protocol):
    name: str

    def complete(
        self, call_type: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> Completion: ...


class OpenAIModel:
    """`POST {url}/chat/completions`."""

    def __init__(self, http: httpx2.Client, url: str, name: str, api_key: str) -> None:
        self.name = name
        self._http, self._url, self._key = http, url, api_key

    def complete(
        self, call_type: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        body: dict[str, Any] = {"model": self.name, "messages": list(messages), "temperature": 0}
        if tools:
            body["tools"] = list(tools)
        response = self._http.post(
            f"{self._url}/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {self._key}"},
            timeout=120,
        )
        response.raise_for_status()
        answer = response.json()
        said, usage = answer["choices"][0]["message"], answer.get("usage", {})
        return Completion(
            text=said.get("content") or "",
            tool_calls=[
                ToolCall(
                    id=call["id"],
                    name=call["function"]["name"],
                    arguments=json.loads(call["function"]["arguments"]),
                )
                for call in said.get("tool_calls") or []
            ],
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", 0),
        )


CLASSES = (
    ("payment_request", r"\binvoice\b|\bamount due\b"),
    ("action_required", r"\bplease sign\b|\baction required\b"),
    ("waiting", r"\bwe will get back to you\b|\bunder review\b"),
    ("needs_response", r"\?"),
)


class RuleModel:
    """Answers by rules, the same every time. The last user message is a form: `Name: value` lines, then the text."""

    name = "rules"

    def complete(
        self, call_type: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        rules: dict[str, Callable[[Sequence[Message]], Completion]] = {
            "classify": self._classify,
            "context": self._context,
            "draft": self._draft,
            "agent": self._agent,
        }
        completion = rules[call_type](messages)
        words = sum(len(str(message.get("content") or "").split()) for message in messages)
        return completion.model_copy(
            update={"prompt_tokens": words, "completion_tokens": len(completion.text.split())}
        )

    def _classify(self, messages: Sequence[Message]) -> Completion:
        text = _last_user(messages).lower()
        found = next((name for name, pattern in CLASSES if re.search(pattern, text)), "fyi")
        return Completion(text=json.dumps({"classification": found, "reasoning": f"reads like {found}"}))

    def _context(self, messages: Sequence[Message]) -> Completion:
        subject = _field(_last_user(messages), "Subject").removeprefix("Re: ")
        return Completion(text=json.dumps([word for word in subject.split() if len(word) > 4][:2]))

    def _draft(self, messages: Sequence[Message]) -> Completion:
        form = _last_user(messages)
        lines = [f"Hello {_field(form, 'From').partition('@')[0]},", ""]
        lines.append(f'thank you for your message about "{_field(form, "Subject")}".')
        if style := _field(form, "Style"):
            lines.append(f"(in a {style} tone)")
        if wish := _field(form, "Instructions"):
            lines.append(f"As instructed: {wish}")
        return Completion(text="\n".join(lines))

    def _agent(self, messages: Sequence[Message]) -> Completion:
        """Looks the order up, writes a reply from what it has found, and says so; without an order it asks a human."""
        used = [call["function"]["name"] for m in messages for call in m.get("tool_calls") or []]
        number = re.search(r"#(\d+)", _last_user(messages))
        if number is None and not used:
            return _tool(len(used), "escalate", reason="no order number in the message")
        if "lookup_order" not in used and number is not None:
            return _tool(len(used), "lookup_order", order_id=number.group(1))
        if "reply" not in used and number is not None:
            return _tool(len(used), "reply", body=f"Your order: {messages[-1]['content']}")
        return Completion(text=f"done with {', '.join(used)}")


def _tool(number: int, name: str, **arguments: str) -> Completion:
    return Completion(text="", tool_calls=[ToolCall(id=f"call_{number}", name=name, arguments=arguments)])


def _last_user(messages: Sequence[Message]) -> str:
    return next(str(m["content"]) for m in reversed(messages) if m["role"] == "user")


def _field(form: str, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", form, re.MULTILINE)
    return found.group(1) if found else ""


class LoggedModel:
    """Calls the model for one job, and writes every call that was really made into `llm_calls`, failed ones too."""

    def __init__(self, model: Model, db: Database, user_id: str, job_id: str) -> None:
        self._model, self._db, self._user_id, self._job_id = model, db, user_id, job_id

    def complete(
        self,
        call_type: str,
        thread_id: str,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
    ) -> Completion:
        began, completion, error = time.monotonic(), Completion(text=""), None
        try:
            completion = self._model.complete(call_type, messages, tools)
            return completion
        except Exception as problem:
            error = str(problem)
            raise
        finally:
            self._db.write(
                "INSERT INTO llm_calls (user_id, gmail_thread_id, call_type, model, prompt_tokens,"
                " completion_tokens, latency_ms, error, job_id, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(self._user_id, thread_id, call_type, self._model.name, completion.prompt_tokens),
                *(completion.completion_tokens, int((time.monotonic() - began) * 1000), error),
                *(self._job_id, now()),
            )
