"""The OpenAI-compatible client against a server on loopback that speaks the chat API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from examples.mail_assistant.conftest import Office, place_of
from examples.mail_assistant.demo import KINDS
from examples.mail_assistant.llm import RuleModel
from examples.mail_assistant.settings import settings
from examples.mail_assistant.tasks import sync

requested: list[dict[str, Any]] = []


class Chat(BaseHTTPRequestHandler):
    """Answers as the rule model would, in OpenAI's words. What is wanted it reads from the prompt."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requested.append({"path": self.path, "key": self.headers["Authorization"], **body})
        prompt = body["messages"][0]["content"]
        words = {"Classify": "classify", "search words": "context", "Write a reply": "draft"}
        call_type = next((name for word, name in words.items() if word in prompt), "agent")
        answer = RuleModel().complete(call_type, body["messages"])
        calls = [
            {"id": call.id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call in answer.tool_calls
        ]
        said = {"role": "assistant", "content": answer.text or None, "tool_calls": calls}
        text = {"choices": [{"message": said}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(text).encode())

    def log_message(self, *_: object) -> None:
        """Not on the test's output."""


@pytest.fixture
def chat_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_speaks_openai_does_what_the_rules_do(
    office: Office, chat_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "llm_url", chat_url)
    monkeypatch.setattr(settings, "llm_api_key", "k")
    dinner, order = place_of(office)["thread_id"], place_of(office, KINDS[7])["thread_id"]
    office.run(sync)
    assert office.world.wrong({dinner: KINDS[0], order: KINDS[7]}) == []
    assert {(one["path"], one["key"], one["model"]) for one in requested} == {
        ("/v1/chat/completions", "Bearer k", settings.llm_model)
    }
    tools = next(one["tools"] for one in requested if "tools" in one)
    assert [tool["function"]["name"] for tool in tools] == ["lookup_order", "reply", "escalate"]
    rows = office.db.rows("SELECT DISTINCT model, prompt_tokens, completion_tokens FROM llm_calls")
    assert rows == [{"model": settings.llm_model, "prompt_tokens": 7, "completion_tokens": 3}]
