"""`python -m examples.mail_assistant`: the assistant on SQLite, with a Gmail stand-in and a mailbox to look at.

Set GMA_GMAIL_URL to use another Gmail; then nothing is made up, and users are added with `users.add_user`.
LEASEHOLD_URL points it at PostgreSQL.
"""

from __future__ import annotations

import os

from examples.mail_assistant.app import Resources, app
from examples.mail_assistant.demo import ADDRESS, KINDS, USER_SETTINGS, World
from examples.mail_assistant.processes import Processes
from examples.mail_assistant.settings import settings
from examples.mail_assistant.users import add_user


def main() -> None:
    given = os.environ.get("GMA_GMAIL_URL", "")
    with Processes(app.url, given) as processes:
        if not given:
            processes.start_gmail()
            settings.gmail_url = processes.gmail_url
            world = World(processes.gmail_url)
            world.make()
            shared = Resources.open()
            shared.db.write("DELETE FROM sync_state")  # the stand-in has forgotten its history
            add_user(shared, "1", ADDRESS, ADDRESS, **USER_SETTINGS)
            shared.close()
            world.fill(len(KINDS))
            print(f"Gmail stand-in    {processes.gmail_url}, mailbox {ADDRESS}, {len(KINDS)} new messages")
        assistant = processes.start_assistant()
        print(f"mail assistant    {processes.web_url}: POST /webhook, POST /api/sync")
        print(f"its jobs          leasehold jobs --url {app.url}")
        print("Ctrl-C ends it: the current jobs are waited for", flush=True)
        try:
            assistant.wait()
        except KeyboardInterrupt:
            print("ending")


if __name__ == "__main__":
    main()
