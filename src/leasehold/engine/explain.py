"""Why a job is not running: every cause that holds it, in order, with what would change that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from leasehold.domain.errors import JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.stores.contract import Pause, Relative, Store, WorkerCard

MOST_PARENTS = 5
"""Named one by one; the others are counted."""

Cause = Literal[
    "resting",
    "running",
    "orphan",
    "pending",
    "parent",
    "waiting",
    "not_due",
    "queue_paused",
    "kind_paused",
    "lane_blocked",
    "lane_order",
    "no_worker",
    "no_handler",
    "nothing",
]


@dataclass(frozen=True, slots=True)
class Hold:
    """One thing that holds a job. `cause` is for programs, `detail` and `remedy` are for people."""

    cause: Cause
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.detail}; {self.remedy}" if self.remedy else self.detail


class Explanation(list[Hold]):
    """Every cause in order; printed, a line each."""

    def __str__(self) -> str:
        return "\n".join(f"{number}. {hold}" for number, hold in enumerate(self, 1))


def explain(store: Store, job_id: str) -> list[Hold]:
    """At most eight indexed reads, each its own: what it says may be a moment old."""
    job, now = store.get(job_id), store.now()
    match job.state:
        case State.PENDING:
            holds = [*_pending(store, job), *_not_due(job, now)]
        case State.QUEUED:
            holds = _not_due(job, now)
        case State.WAITING:
            return [_waiting(store, job)]
        case State.RUNNING:
            return [_running(store, job, now)]
        case _:
            return [_resting(job, now)]
    holds += _paused(job, store.list_pauses(), now)
    holds += _lane(store, job)
    holds += _workers(job, store.list_workers())
    return holds or [Hold("nothing", "nothing holds it: a free worker takes it at once")]


# -- its own state -----------------------------------------------------------------------------------------------------
def _resting(job: Job, now: datetime) -> Hold:
    ago = "" if job.finished_at is None else f" {_span(now - job.finished_at)} ago"
    why = f": {_first_line(job.error or job.reason)}" if job.error or job.reason else ""
    match job.state:
        case State.SUCCEEDED:
            return Hold("resting", f"it succeeded{ago}", "retry makes a new job like it")
        case State.CANCELLED:
            return Hold("resting", f"it was cancelled{ago}{why}", "retry makes a new job like it")
        case State.PAUSED:
            return Hold("resting", f"it is paused{why}", "resume it")
    ended = "timed out" if job.state is State.TIMED_OUT else "failed"
    if job.halts_lane:
        detail = f"it {ended}{ago} and halts lane {job.lane!r}{why}"
        return Hold("resting", detail, "resume it, or resolve it to let the lane go on")
    return Hold("resting", f"it {ended}{ago}{why}", "resume it")


def _running(store: Store, job: Job, now: datetime) -> Hold:
    asked = f"; {job.stop_requested.value} is asked for" if job.stop_requested else ""
    if job.lease_owner is None or job.lease_expires_at is None:
        site = f" at {job.execution_site}" if job.execution_site else ""
        return Hold(
            "orphan",
            f"its worker is gone, its execution{site} may live on{asked}",
            "a worker of that site adopts it",
        )
    progress = store.progress(job.id)
    if progress is not None:
        asked = f"; last progress {_span(now - progress.at)} ago ({_first_line(str(progress))}){asked}"
    left = job.lease_expires_at - now
    since = "" if job.started_at is None else f" since {_span(now - job.started_at)}"
    if left.total_seconds() < 0:
        return Hold(
            "running",
            f"it runs on {job.lease_owner}{since}, but the lease ran out {_span(-left)} ago{asked}",
            "a live worker takes it over after two looks; start one if there is none",
        )
    return Hold("running", f"it runs on {job.lease_owner}{since}; the lease holds {_span(left)} more{asked}")


def _pending(store: Store, job: Job) -> list[Hold]:
    held = [Hold("pending", "it is held since it was enqueued", "release it")] if job.held else []
    if not job.unmet:
        return held
    unmet = [
        one for one in store.relatives(job.id, MOST_PARENTS) if one.relation == "waits_for" and not one.met
    ]
    waits = [_parent(one) for one in unmet]
    if job.unmet > len(waits):
        others = f"{job.unmet - len(waits)} more job(s)" if waits else f"{job.unmet} other job(s)"
        waits.append(Hold("parent", f"it waits for {others} to end", "see to those jobs"))
    return [*held, *waits]


def _parent(parent: Relative) -> Hold:
    remedy = {
        State.PAUSED: f"resume or cancel {parent.id}",
        State.WAITING: f"answer its question: see why {parent.id}",
        State.PENDING: f"see why {parent.id} does not run",
        State.QUEUED: f"see why {parent.id} does not run",
    }.get(parent.state, "wait for its end, or cancel it")
    without = ", cancelled if that does not succeed" if parent.on_failure == "cancel" else ""
    return Hold(
        "parent", f"it waits for job {parent.id} ({parent.kind}, {parent.state.value}){without}", remedy
    )


def _waiting(store: Store, job: Job) -> Hold:
    asked = [question for question in store.questions(job.id) if question.closed_at is None]
    if not asked:
        return Hold("waiting", "it waits for an answer", "answer it")
    told = "; ".join(f"{question.key}: {_first_line(question.text)}" for question in asked)
    return Hold("waiting", f"it waits for an answer to {told}", f"answer {asked[0].key!r}")


def _not_due(job: Job, now: datetime) -> list[Hold]:
    if job.available_at <= now:
        return []
    why = "it was delayed"
    if job.attempt:
        told = f": {_first_line(job.error)}" if job.error else ""
        why = f"attempt {job.attempt} ended without success{told}"
    left = _span(job.available_at - now)
    return [Hold("not_due", f"it is not due for {left}, until {_instant(job.available_at)}; {why}", "wait")]


# -- what stands in its way --------------------------------------------------------------------------------------------
def _paused(job: Job, pauses: list[Pause], now: datetime) -> list[Hold]:
    names = {"queue": job.queue, "kind": job.kind}
    return [_pause(pause) for pause in pauses if names[pause.scope] == pause.name]


def _pause(pause: Pause) -> Hold:
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    why = f": {_first_line(pause.reason)}" if pause.reason else ""
    until = f" until {_instant(pause.until)}" if pause.until else ""
    return Hold(
        "queue_paused" if pause.scope == "queue" else "kind_paused",
        f"{pause.scope} {pause.name!r} is paused{until}{by}{why}",
        f"resume the {pause.scope} {pause.name!r}",
    )


def _lane(store: Store, job: Job) -> list[Hold]:
    if job.lane is None:
        return []
    head, blocker = store.lane_front(job.lane)
    try:
        if blocker is not None and blocker != job.id:
            return [_blocked(job.lane, store.get(blocker))]
        if head is not None and head != job.id:
            before = store.get(head)
            detail = f"job {head} ({before.kind}, {before.state.value}) is before it in lane {job.lane!r}"
            return [Hold("lane_order", detail, f"see why {head} does not run, or cancel it")]
    except JobNotFound:
        pass  # gone since we looked: it is in nobody's way any more
    return []


def _blocked(lane: str, blocker: Job) -> Hold:
    told = f"job {blocker.id} ({blocker.kind})"
    if blocker.state is State.RUNNING:
        return Hold(
            "lane_blocked", f"{told} runs in lane {lane!r}", "one at a time: wait for it, or cancel it"
        )
    why = f": {_first_line(blocker.error or blocker.reason)}" if blocker.error or blocker.reason else ""
    remedy = {
        State.WAITING: f"answer its question: see why {blocker.id}",
        State.PAUSED: f"resume or cancel {blocker.id}",
    }.get(blocker.state, f"resume {blocker.id}, or resolve it to let the lane go on without it")
    word = blocker.state.value.replace("_", " ")
    return Hold("lane_blocked", f"lane {lane!r} stands still behind {told}, {word}{why}", remedy)


def _workers(job: Job, cards: list[WorkerCard]) -> list[Hold]:
    alive = [card for card in cards if not card.draining]
    serving = [card for card in alive if job.queue in card.queues]
    if not serving:
        others = f"; {len(alive)} live worker(s) serve other queues" if alive else ""
        return [
            Hold(
                "no_worker",
                f"no live worker serves queue {job.queue!r}{others}",
                f"start one: leasehold worker MODULE:APP --queues {job.queue}",
            )
        ]
    if not any(job.kind in card.kinds for card in serving):
        return [
            Hold(
                "no_handler",
                f"none of the {len(serving)} live worker(s) of queue {job.queue!r} knows the task {job.kind!r}",
                "start a worker whose app registers it",
            )
        ]
    return []


# -- words -------------------------------------------------------------------------------------------------------------
def _instant(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def _span(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
