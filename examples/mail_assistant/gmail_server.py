"""A stand-in for Gmail on loopback: the routes of its REST API that the assistant uses, and push notifications.

    python -m examples.mail_assistant.gmail_server 8726 [http://127.0.0.1:8725/webhook]

A mailbox is named by the bearer token, which is the address itself. Routes below /control are the world outside: a
test that makes a mailbox, a history that expires, requests that wait or fail. Everything is forgotten when the process
ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from fastapi import Body, Depends, FastAPI, Header, HTTPException, Request, Response

from examples.mail_assistant.gmail_mailbox import Mailbox, NotFound

Json = Annotated[dict[str, Any], Body()]
api = FastAPI()
mailboxes: dict[str, Mailbox] = {}
faults: Counter[str] = Counter()
calls: Counter[str] = Counter()
gates: dict[str, asyncio.Event] = {}
held: Counter[str] = Counter()


def _mailbox(authorization: Annotated[str, Header()]) -> Mailbox:
    address = authorization.removeprefix("Bearer ")
    if address not in mailboxes:
        raise HTTPException(401, "no such account")
    return mailboxes[address]


Mine = Annotated[Mailbox, Depends(_mailbox)]
ME = "/gmail/v1/users/me"


@api.middleware("http")
async def wait_or_fail(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every request, before it is answered: it may have been asked to wait, or to fail."""
    if not request.url.path.startswith(ME):
        return await go_on(request)
    path = request.url.path.removeprefix(ME)
    calls[f"{request.method} /{path.split('/')[1]}"] += 1
    for prefix, gate in [*gates.items()]:
        if path.startswith(prefix):
            held[prefix] += 1
            try:
                await gate.wait()
            finally:
                held[prefix] -= 1
    for prefix, left in faults.items():
        if left > 0 and path.startswith(prefix):
            faults[prefix] -= 1
            return Response("the backend is down", 503)
    return await go_on(request)


@api.exception_handler(NotFound)
async def not_found(_: Request, error: Exception) -> Response:
    return Response(str(error), 404)


@api.get(f"{ME}/profile")
async def profile(mailbox: Mine) -> dict[str, Any]:
    return {"emailAddress": mailbox.address, "historyId": str(mailbox.history_id)}


@api.get(f"{ME}/labels")
async def labels_list(mailbox: Mine) -> dict[str, Any]:
    return {"labels": [{"id": key, "name": name} for key, name in mailbox.labels.items()]}


@api.post(f"{ME}/labels")
async def labels_create(mailbox: Mine, body: Json) -> dict[str, Any]:
    return {"id": mailbox.create_label(body["name"]), "name": body["name"]}


@api.get(f"{ME}/messages")
async def messages_list(
    mailbox: Mine, q: str = "", maxResults: int = 100, pageToken: int = 0
) -> dict[str, Any]:
    found = mailbox.search(q)
    page = [{"id": m["id"], "threadId": m["threadId"]} for m in found[pageToken : pageToken + maxResults]]
    end = pageToken + maxResults
    return {"messages": page} | ({"nextPageToken": str(end)} if end < len(found) else {})


@api.post(f"{ME}/messages/import")
async def messages_import(mailbox: Mine, body: Json) -> dict[str, Any]:
    """How mail arrives."""
    received = float(body.get("internalDate", time.time() * 1000)) / 1000
    return mailbox.add(body["raw"], body.get("labelIds", ["INBOX", "UNREAD"]), body.get("threadId"), received)


@api.post(f"{ME}/messages/batchModify", status_code=204)
async def messages_batch_modify(mailbox: Mine, body: Json) -> None:
    for message_id in body["ids"]:
        mailbox.modify(message_id, body.get("addLabelIds", []), body.get("removeLabelIds", []))


@api.get(f"{ME}/messages/{{message_id}}")
async def messages_get(mailbox: Mine, message_id: str) -> dict[str, Any]:
    return mailbox.message(message_id)


@api.delete(f"{ME}/messages/{{message_id}}", status_code=204)
async def messages_delete(mailbox: Mine, message_id: str) -> None:
    mailbox.delete(message_id)


@api.post(f"{ME}/messages/{{message_id}}/modify")
async def messages_modify(mailbox: Mine, message_id: str, body: Json) -> dict[str, Any]:
    return mailbox.modify(message_id, body.get("addLabelIds", []), body.get("removeLabelIds", []))


@api.post(f"{ME}/messages/{{message_id}}/trash")
async def messages_trash(mailbox: Mine, message_id: str) -> dict[str, Any]:
    return mailbox.modify(message_id, ["TRASH"], ["INBOX"])


@api.get(f"{ME}/threads/{{thread_id}}")
async def threads_get(mailbox: Mine, thread_id: str) -> dict[str, Any]:
    return {"id": thread_id, "messages": mailbox.thread(thread_id)}


@api.get(f"{ME}/drafts")
async def drafts_list(mailbox: Mine) -> dict[str, Any]:
    """All on one page."""
    return {
        "drafts": [
            {"id": draft_id, "message": {"id": message["id"], "threadId": message["threadId"]}}
            for draft_id, message in mailbox.live_drafts()
        ]
    }


@api.post(f"{ME}/drafts")
async def drafts_create(mailbox: Mine, body: Json) -> dict[str, Any]:
    return mailbox.create_draft(body["message"]["raw"], body["message"].get("threadId"))


@api.post(f"{ME}/drafts/send")
async def drafts_send(mailbox: Mine, body: Json) -> dict[str, Any]:
    return mailbox.send_draft(body["id"])


@api.get(f"{ME}/history")
async def history_list(
    mailbox: Mine, startHistoryId: int, maxResults: int = 100, pageToken: int = 0
) -> dict[str, Any]:
    found = mailbox.history_since(startHistoryId)
    end = pageToken + maxResults
    page = {"history": found[pageToken:end], "historyId": str(mailbox.history_id)}
    return page | ({"nextPageToken": str(end)} if end < len(found) else {})


@api.post(f"{ME}/watch")
async def watch(mailbox: Mine, body: Json) -> dict[str, Any]:
    mailbox.watched_until = time.time() + 7 * 86400
    return {"historyId": str(mailbox.history_id), "expiration": str(int(mailbox.watched_until * 1000))}


# --- The world outside ----------------------------------------------------------------------------------------------


@api.post("/control/mailboxes")
async def make_mailbox(body: Json) -> None:
    mailboxes.setdefault(body["address"], Mailbox(body["address"]))


@api.post("/control/expire-history")
async def expire_history(body: Json) -> None:
    mailboxes[body["address"]].expire_history()


@api.post("/control/faults")
async def set_faults(body: Json) -> None:
    """{"/drafts": 2}: the next two requests below this path fail."""
    faults.update(body)


@api.post("/control/hold")
async def hold(body: Json) -> None:
    """{"/history": true}: requests below this path wait, until false is sent."""
    for prefix, wait in body.items():
        if wait:
            gates.setdefault(prefix, asyncio.Event())
        elif gate := gates.pop(prefix, None):
            gate.set()


@api.get("/control/state")
async def state() -> dict[str, Any]:
    watched = {address: mailbox.watched_until for address, mailbox in mailboxes.items()}
    return {"calls": calls, "watched_until": watched, "held": held}


def push_forever(url: str) -> None:
    """As Pub/Sub does for a watched mailbox: the address and the newest history id, nothing else. A notification that
    nobody takes is lost, which is what the fallback sync is for."""
    told: dict[str, int] = {}
    while True:
        time.sleep(0.2)
        for address, mailbox in list(mailboxes.items()):
            if mailbox.watched_until < time.time() or told.get(address) == mailbox.history_id:
                continue
            told[address] = mailbox.history_id
            data = json.dumps({"emailAddress": address, "historyId": mailbox.history_id}).encode()
            envelope = {"message": {"data": base64.b64encode(data).decode()}, "subscription": "loopback"}
            request = urllib.request.Request(url, json.dumps(envelope).encode(), method="POST")
            request.add_header("Content-Type", "application/json")
            try:
                urllib.request.urlopen(request, timeout=10).close()
            except OSError:
                continue


def main() -> None:
    port, *push_url = sys.argv[1:]
    if push_url:
        threading.Thread(target=push_forever, args=(push_url[0],), daemon=True).start()
    uvicorn.run(api, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
