"""A small client for the parts of Gmail's REST API that the assistant uses. One for each user."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any

import httpx2


class HistoryGone(Exception):
    """The history since this id is no longer kept: only a full sync can help."""


@dataclass(frozen=True)
class Mail:
    id: str
    thread_id: str
    labels: tuple[str, ...]
    sender: str
    subject: str
    body: str

    @classmethod
    def read(cls, resource: dict[str, Any]) -> Mail:
        headers = {h["name"].lower(): h["value"] for h in resource["payload"]["headers"]}
        data = resource["payload"]["body"].get("data", "")
        return cls(
            id=resource["id"],
            thread_id=resource["threadId"],
            labels=tuple(resource.get("labelIds", ())),
            sender=parseaddr(headers.get("from", ""))[1].lower(),
            subject=headers.get("subject", ""),
            body=base64.urlsafe_b64decode(data).decode(),
        )


@dataclass(frozen=True)
class Draft:
    id: str
    mail: Mail


def raw_message(sender: str, to: str, subject: str, body: str) -> str:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, to, subject
    message.set_content(body)
    return base64.urlsafe_b64encode(message.as_bytes()).decode()


class Gmail:
    def __init__(self, http: httpx2.Client, base_url: str, address: str, token: str) -> None:
        self.address = address
        self._http = http
        self._base = f"{base_url}/gmail/v1/users/me"
        self._headers = {"Authorization": f"Bearer {token}"}

    # -- reading -----------------------------------------------------------------------------------------------------
    def profile(self) -> dict[str, Any]:
        return self._call("GET", "/profile")

    def message(self, message_id: str) -> Mail | None:
        """None: it was deleted meanwhile."""
        found = self._call("GET", f"/messages/{message_id}", missing=None)
        return Mail.read(found) if found else None

    def thread(self, thread_id: str) -> list[Mail]:
        found = self._call("GET", f"/threads/{thread_id}", missing={"messages": []})
        return [mail for mail in map(Mail.read, found["messages"]) if "TRASH" not in mail.labels]

    def search(self, query: str, limit: int | None = None) -> Iterator[dict[str, str]]:
        pages = self._pages("/messages", "messages", {"q": query, "maxResults": limit or 100})
        yield from (found for number, found in enumerate(pages) if limit is None or number < limit)

    def history(self, since: str) -> Iterator[dict[str, Any]]:
        try:
            yield from self._pages("/history", "history", {"startHistoryId": since})
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == 404:
                raise HistoryGone(since) from None
            raise

    def drafts(self, thread_id: str) -> list[Draft]:
        listed = self._call("GET", "/drafts")["drafts"]
        mine = [item for item in listed if item["message"]["threadId"] == thread_id]
        pairs = [(item["id"], self.message(item["message"]["id"])) for item in mine]
        return [Draft(draft_id, mail) for draft_id, mail in pairs if mail is not None]

    # -- changing ----------------------------------------------------------------------------------------------------
    def ensure_labels(self, names: tuple[str, ...]) -> dict[str, str]:
        """The ids of these labels, by name; those that are missing are made."""
        known = {label["name"]: label["id"] for label in self._call("GET", "/labels")["labels"]}
        return {
            name: known.get(name) or self._call("POST", "/labels", json={"name": name})["id"]
            for name in names
        }

    def modify(self, message_id: str, *, add: list[str], remove: list[str]) -> None:
        self._call(
            "POST", f"/messages/{message_id}/modify", json={"addLabelIds": add, "removeLabelIds": remove}
        )

    def batch_modify(self, message_ids: list[str], *, add: list[str], remove: list[str]) -> None:
        body = {"ids": message_ids, "addLabelIds": add, "removeLabelIds": remove}
        self._call("POST", "/messages/batchModify", json=body)

    def trash(self, message_id: str) -> None:
        self._call("POST", f"/messages/{message_id}/trash", missing={})

    def create_draft(self, thread_id: str, to: str, subject: str, body: str) -> str:
        raw = raw_message(self.address, to, subject, body)
        return self._call("POST", "/drafts", json={"message": {"threadId": thread_id, "raw": raw}})["id"]

    def watch(self, topic: str) -> dict[str, Any]:
        return self._call("POST", "/watch", json={"topicName": topic, "labelIds": ["INBOX"]})

    # -- HTTP --------------------------------------------------------------------------------------------------------
    def _pages(self, path: str, name: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        while True:
            page = self._call("GET", path, params=params)
            yield from page.get(name, [])
            if "nextPageToken" not in page:
                return
            params = params | {"pageToken": page["nextPageToken"]}

    def _call(self, method: str, path: str, *, missing: Any = ..., **request: Any) -> Any:
        """`missing` is the answer where Gmail says 404; without it that is an error, as every other status is."""
        response = self._http.request(method, self._base + path, headers=self._headers, **request)
        if response.status_code == 404 and missing is not ...:
            return missing
        response.raise_for_status()
        return response.json() if response.content else None
