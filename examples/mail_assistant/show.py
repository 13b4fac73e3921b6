"""`python -m examples.mail_assistant.show`: a mailbox is worked off by real processes; one is killed."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from examples.mail_assistant.app import Resources
from examples.mail_assistant.demo import ADDRESS, KINDS, USER_SETTINGS, World
from examples.mail_assistant.processes import Processes, kill, wait_for
from examples.mail_assistant.settings import settings
from examples.mail_assistant.users import add_user
from leasehold import Leasehold

MESSAGES = 40


def main(folder: Path) -> str:
    url = f"sqlite:///{folder}/mail.db"
    with Processes(url, GMA_LEASE_SECONDS="3") as processes:
        processes.start_gmail()
        world = World(processes.gmail_url)
        world.make()
        settings.gmail_url = processes.gmail_url
        with Leasehold(url) as engine:
            shared = Resources.open(engine)
        add_user(shared, "1", ADDRESS, ADDRESS, **USER_SETTINGS)

        began = time.monotonic()
        threads = world.fill(MESSAGES)
        print(f"{MESSAGES} messages have arrived; the assistant starts, renews its watch and is notified")
        first = processes.start_assistant()

        def counted() -> Counter[str]:
            rows = shared.db.rows("SELECT job_type, status FROM jobs")
            return Counter(f"{row['job_type']} {row['status']}" for row in rows)

        def at_rest() -> bool:
            return not shared.db.rows("SELECT 1 AS x FROM jobs WHERE status IN ('pending', 'running')")

        wait_for(lambda: counted()["classify completed"] >= MESSAGES // 4, "a quarter is classified")
        kill(first)
        print(f"kill -9 after {counted()['classify completed']} messages; another one starts")
        processes.start_assistant()
        wait_for(lambda: at_rest() and not world.wrong(threads), "everything is done", 40)
        for name, number in sorted(counted().items()):
            print(f"  {number:4} {name}")

        dinner = next(key for key, kind in threads.items() if kind is KINDS[0])
        message = world.call("GET", f"/threads/{dinner}")["messages"][0]
        world.put_label(message["id"], "Rework")
        rework = "SELECT 1 AS x FROM emails WHERE gmail_thread_id = ? AND rework_count = 1"
        wait_for(lambda: shared.db.row(rework, dinner), "the draft is reworked")
        world.call("POST", "/drafts/send", json={"id": world.drafts_of(dinner)[0]})
        sent = "SELECT 1 AS x FROM emails WHERE gmail_thread_id = ? AND status = 'sent'"
        wait_for(lambda: shared.db.row(sent, dinner), "the sent draft is noticed")
        print("a draft was reworked, then sent, and both were noticed through the history")

        events = shared.db.rows("SELECT event_type FROM email_events WHERE gmail_thread_id = ?", dinner)
        shared.close()
        story = " → ".join(row["event_type"] for row in events)
        drafts = sum(kind.draft for kind in threads.values())
        return (
            f"{MESSAGES} messages labelled, {drafts} drafts, one each, through kill -9;"
            f" one thread: {story}; {time.monotonic() - began:.0f} s"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        try:
            print(main(Path(scratch)))
        except TimeoutError as problem:
            sys.exit(str(problem))
