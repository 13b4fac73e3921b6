"""One mailbox of the stand-in: messages, labels, drafts, and a history of every change to them."""

from __future__ import annotations

import base64
import copy
import itertools
import re
import time
from email import message_from_bytes
from email.policy import default
from typing import Any

SYSTEM_LABELS = ("INBOX", "SENT", "DRAFT", "TRASH", "UNREAD")
Message = dict[str, Any]


class NotFound(Exception):
    """Gmail answers 404."""


class Mailbox:
    def __init__(self, address: str) -> None:
        self.address = address
        self.labels = {name: name for name in SYSTEM_LABELS}
        self.messages: dict[str, Message] = {}
        self.drafts: dict[str, str] = {}
        self.history: list[dict[str, Any]] = []
        self.history_id = 1000
        self.expired_before = 0
        self.watched_until = 0.0
        self._numbers = itertools.count(1)

    # -- labels and messages -----------------------------------------------------------------------------------------
    def create_label(self, name: str) -> str:
        for key, known in self.labels.items():
            if known == name:
                return key
        key = f"Label_{next(self._numbers)}"
        self.labels[key] = name
        return key

    def add(self, raw: str, labels: list[str], thread_id: str | None, received: float) -> Message:
        message_id = f"msg_{next(self._numbers):05}"
        text = message_from_bytes(base64.urlsafe_b64decode(raw), policy=default)
        body = text.get_content() if not text.is_multipart() else ""
        message = {
            "id": message_id,
            "threadId": thread_id or f"thread_{message_id}",
            "labelIds": list(labels),
            "snippet": body[:80],
            "internalDate": str(int(received * 1000)),
            "payload": {
                "mimeType": "text/plain",
                "headers": [{"name": name, "value": str(value)} for name, value in text.items()],
                "body": {"size": len(body), "data": base64.urlsafe_b64encode(body.encode()).decode()},
            },
        }
        self.messages[message_id] = message
        self._note(message, "messagesAdded")
        return copy.deepcopy(message)

    def message(self, message_id: str) -> Message:
        if message_id not in self.messages:
            raise NotFound(f"message {message_id}")
        return self.messages[message_id]

    def thread(self, thread_id: str) -> list[Message]:
        found = [m for m in self.messages.values() if m["threadId"] == thread_id]
        if not found:
            raise NotFound(f"thread {thread_id}")
        return found

    def modify(self, message_id: str, add: list[str], remove: list[str]) -> Message:
        """Only what changes is history, as with Gmail: a repeat leaves no trace."""
        message = self.message(message_id)
        for label in (*add, *remove):
            if label not in self.labels:
                raise NotFound(f"label {label}")
        added = [label for label in add if label not in message["labelIds"]]
        removed = [label for label in remove if label in message["labelIds"]]
        message["labelIds"] = [label for label in message["labelIds"] if label not in removed] + added
        if added:
            self._note(message, "labelsAdded", labelIds=added)
        if removed:
            self._note(message, "labelsRemoved", labelIds=removed)
        return message

    def delete(self, message_id: str) -> None:
        message = self.message(message_id)
        del self.messages[message_id]
        self._note(message, "messagesDeleted")

    # -- search ------------------------------------------------------------------------------------------------------
    def search(self, query: str) -> list[Message]:
        """Newest first. It knows in:, label:, -label:, newer_than:Nd, from: and words."""
        terms = re.findall(r'\S+:"[^"]*"|\S+', query)
        found = [m for m in self.messages.values() if "TRASH" not in m["labelIds"]]
        for term in terms:
            found = [m for m in found if self._matches(m, term)]
        return sorted(found, key=lambda m: (int(m["internalDate"]), m["id"]), reverse=True)

    def _matches(self, message: Message, term: str) -> bool:
        if term.startswith("-"):
            return not self._matches(message, term[1:])
        key, colon, value = term.partition(":")
        headers = {h["name"].lower(): h["value"].lower() for h in message["payload"]["headers"]}
        if not colon:
            body = base64.urlsafe_b64decode(message["payload"]["body"]["data"]).decode()
            return term.lower() in f"{headers.get('subject', '')} {body.lower()}"
        if key == "from":
            return value.lower() in headers.get("from", "")
        if key == "newer_than":
            return int(message["internalDate"]) / 1000 > time.time() - int(value[:-1]) * 86400
        if key in ("in", "label"):
            wanted = value.strip('"').lower().replace(" ", "-")
            names = {self.labels[label].lower().replace(" ", "-") for label in message["labelIds"]}
            return wanted in names
        return False

    # -- drafts ------------------------------------------------------------------------------------------------------
    def create_draft(self, raw: str, thread_id: str | None) -> dict[str, Any]:
        message = self.add(raw, ["DRAFT"], thread_id, time.time())
        draft_id = f"draft_{message['id']}"
        self.drafts[draft_id] = message["id"]
        return {"id": draft_id, "message": message}

    def live_drafts(self) -> list[tuple[str, Message]]:
        """Neither sent nor in the bin."""
        pairs = [(key, self.messages.get(message_id)) for key, message_id in self.drafts.items()]
        return [(key, m) for key, m in pairs if m is not None and "TRASH" not in m["labelIds"]]

    def send_draft(self, draft_id: str) -> Message:
        """The draft's message goes, and a sent one takes its place."""
        draft = self.message(self.drafts.pop(draft_id, draft_id))
        self.delete(draft["id"])
        sent = copy.deepcopy(draft) | {"id": f"msg_{next(self._numbers):05}", "labelIds": ["SENT"]}
        self.messages[sent["id"]] = sent
        self._note(sent, "messagesAdded")
        return sent

    # -- history -----------------------------------------------------------------------------------------------------
    def history_since(self, start: int) -> list[dict[str, Any]]:
        if start < self.expired_before:
            raise NotFound("this part of the history is gone")
        return [record for record in self.history if int(record["id"]) > start]

    def expire_history(self) -> None:
        """As Gmail does after a week or so."""
        self.history_id += 1
        self.expired_before = self.history_id
        self.history.clear()

    def _note(self, message: Message, what: str, **more: Any) -> None:
        self.history_id += 1
        message["historyId"] = str(self.history_id)
        brief = {"id": message["id"], "threadId": message["threadId"], "labelIds": list(message["labelIds"])}
        self.history.append({"id": str(self.history_id), what: [{"message": brief, **more}]})
