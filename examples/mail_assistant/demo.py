"""Mail for the demo and the tests, and what should become of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx2

from examples.mail_assistant.gmail import raw_message

ADDRESS = "me@example.org"
USER_SETTINGS: dict[str, Any] = {
    "blacklist": ["*@spam.example"],
    "contacts": {"boss@work.example": "formal"},
    "routes": [{"name": "pharmacy_support", "sender": "*@crisp.example", "profile": "pharmacy"}],
}


@dataclass(frozen=True)
class Kind:
    """A sort of mail."""

    sender: str
    subject: str
    body: str
    label: str
    """What its thread bears in the end."""
    draft: bool = False


KINDS = (
    Kind("ann@friends.example", "Dinner on Friday", "Shall we meet at eight?", "Outbox", draft=True),
    Kind("billing@power.example", "Your bill", "Your invoice 17 is attached.", "Payment Request"),
    Kind("newsletter@shop.example", "News", "Would you like a bargain?", "FYI"),
    Kind("boss@work.example", "Numbers", "Could you send me the numbers?", "Outbox", draft=True),
    Kind("crook@spam.example", "You won", "Do you want your prize?", "FYI"),
    Kind("hr@work.example", "Contract", "Please sign the contract.", "Action Required"),
    Kind("office@town.example", "Your request", "It is under review.", "Waiting"),
    Kind(
        "desk@crisp.example",
        "Order",
        "Forwarded by Crisp\nCustomer: carl@home.example\n\nWhere is my order #1001?",
        "Outbox",
        draft=True,
    ),
)


class World:
    """What happens in the mailbox besides the assistant: mail arrives, and the user does something."""

    def __init__(self, url: str, address: str = ADDRESS) -> None:
        self.url, self.address = url, address
        self.http = httpx2.Client(timeout=30, trust_env=False, headers={"Authorization": f"Bearer {address}"})

    def call(self, method: str, path: str, **request: Any) -> Any:
        response = self.http.request(method, f"{self.url}/gmail/v1/users/me{path}", **request)
        response.raise_for_status()
        return response.json() if response.content else None

    def control(self, path: str, body: dict[str, Any]) -> None:
        self.http.post(f"{self.url}/control{path}", json=body).raise_for_status()

    def held(self, path: str) -> int:
        """How many requests below this path wait for the end of a hold."""
        state = self.http.get(f"{self.url}/control/state").raise_for_status().json()
        return int(state["held"].get(path, 0))

    def make(self) -> None:
        self.control("/mailboxes", {"address": self.address})

    def receive(
        self, kind: Kind, number: int = 0, age_days: float = 0, thread_id: str = ""
    ) -> dict[str, Any]:
        raw = raw_message(kind.sender, self.address, f"{kind.subject} ({number})", kind.body)
        body: dict[str, Any] = {"raw": raw, "internalDate": int((time.time() - age_days * 86400) * 1000)}
        if thread_id:
            body["threadId"] = thread_id
        message: dict[str, Any] = self.call("POST", "/messages/import", json=body)
        return message

    def fill(self, count: int) -> dict[str, Kind]:
        """So many messages, all sorts in turn: their threads, with what each is."""
        return {
            self.receive(KINDS[number % len(KINDS)], number)["threadId"]: KINDS[number % len(KINDS)]
            for number in range(count)
        }

    def label_id(self, name: str) -> str:
        found: list[dict[str, str]] = self.call("GET", "/labels")["labels"]
        return next(label["id"] for label in found if label["name"] == name)

    def put_label(self, message_id: str, name: str) -> None:
        self.call("POST", f"/messages/{message_id}/modify", json={"addLabelIds": [self.label_id(name)]})

    def labels_of(self, thread_id: str) -> set[str]:
        """The names of the assistant's labels on a thread."""
        names = {label["id"]: label["name"] for label in self.call("GET", "/labels")["labels"]}
        messages = self.call("GET", f"/threads/{thread_id}")["messages"]
        return {names[key] for message in messages for key in message["labelIds"] if key.startswith("Label_")}

    def drafts_of(self, thread_id: str) -> list[str]:
        """The ids of the drafts of a thread."""
        listed = self.call("GET", "/drafts")["drafts"]
        return [item["id"] for item in listed if item["message"]["threadId"] == thread_id]

    def wrong(self, threads: dict[str, Kind]) -> list[str]:
        """What is not as it should be in the end."""
        listed = [item["message"]["threadId"] for item in self.call("GET", "/drafts")["drafts"]]
        problems = []
        for thread_id, kind in threads.items():
            if (found := self.labels_of(thread_id)) != {kind.label}:
                problems.append(f"{thread_id} ({kind.subject}): labels {found}, not {kind.label}")
            if listed.count(thread_id) != int(kind.draft):
                problems.append(f"{thread_id} ({kind.subject}): {listed.count(thread_id)} drafts")
        return problems

    def history_id(self) -> str:
        """It moves whenever anything in the mailbox changes."""
        return str(self.call("GET", "/profile")["historyId"])
