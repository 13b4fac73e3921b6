"""The whole application from outside: real processes, a mailbox that fills, and SIGKILL."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from examples.mail_assistant.outside import Outside, outside, story_of
from examples.mail_assistant.processes import kill, wait_for
from examples.measured import KILLS, database_of
from tests.ports import claim_port

pytestmark = pytest.mark.slow


def test_200_messages_get_their_labels_and_drafts_through_kill_9(url: str) -> None:
    survive_kills(url, kills=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_200_messages_get_their_labels_and_drafts_through_twenty_kills(url: str) -> None:
    began = time.monotonic()
    figures = survive_kills(url, kills=20)
    minutes = round((time.monotonic() - began) / 60, 1)
    KILLS.put(
        "mail_assistant", database_of(url), 20, figures["jobs"], figures["runs"], figures["lost"], minutes
    )


def survive_kills(url: str, kills: int) -> Counter[str]:
    """Nothing is lost, and nothing is doubled: one draft a thread, one event of each sort. Then everything again."""
    chance = random.Random(kills)
    with outside(url) as place:
        threads = place.world.fill(200)
        expected = len(threads) + sum(story_of(kind)[-1] == "draft_created" for kind in threads.values())
        # SQLite has one assistant; on PostgreSQL two share the work, and are killed in turn.
        ports = [place.processes.web_port, *([] if place.db.is_sqlite else [claim_port()])]
        assistants = {port: place.processes.start_assistant(port) for port in ports}
        for number in range(1, kills + 1):
            goal = expected * (number - 1 + chance.random()) / (kills + 1)
            wait_for(lambda goal=goal: place.completed() >= goal, f"{goal:.0f} of {expected} jobs", 180)
            port = ports[number % len(ports)]
            kill(assistants[port])
            assistants[port] = place.processes.start_assistant(port)
        wait_for(lambda: place.completed() >= expected, "all jobs are done", 240)
        jobs = place.jobs_at_rest()
        assert Counter(job["status"] for job in jobs) == {"completed": len(jobs)}
        assert place.world.wrong(threads) == []
        assert place.events() == {thread: story_of(kind) for thread, kind in threads.items()}
        ends = Counter(end for job in jobs for end in place.outcomes(str(job["id"])))
        assert ends["lost"] > 0  # somebody was hit
        assert ends.keys() <= {"succeeded", "lost", "handed_back"}
        check_that_a_repeat_changes_nothing(place)
        return Counter(jobs=len(jobs), runs=ends.total(), lost=ends["lost"])


def check_that_a_repeat_changes_nothing(place: Outside) -> None:
    before = place.snapshot()
    answers = [place.post("/api/sync", params={"full": full}).json() for full in ("true", "false")]
    ids = {job_id for answer in answers for job_id in answer["job_ids"]}
    assert len(ids) == 2
    wait_for(lambda: ids <= place.ids("completed"), "both syncs")
    place.jobs_at_rest()
    assert place.snapshot() == before
