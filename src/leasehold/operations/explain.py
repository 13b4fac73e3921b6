"""Why a job is not running: every cause that holds it, in order, with what would change that."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leasehold.domain.errors import JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.records import GateLimits, Hold, PauseRecord, RateRow, Relative, SlotNeed, WorkerCard
from leasehold.domain.states import FINAL, State

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

# -- job ---------------------------------------------------------------------------------------------------------------

MOST_PARENTS = 5
"""Parents that an explanation lists; it counts the rest."""
MOST_AHEAD = 1000
"""Jobs ahead that are counted at most."""
CANCELS = ("cancelled", "cancel_requested")
PAUSES = ("paused", "pause_requested")
"""Events of the history: an explanation names the last one's actor. A job may also end without an operator."""


def explain(store: JobStore, job_id: str) -> list[Hold]:
    """List what holds the job, by a bounded number of indexed reads. They are not one transaction: the list may be a
    moment old."""
    job, now = store.get(job_id), store.now()
    match job.state:
        case State.PENDING:
            holds = [*_pending(store, job), *_not_due(store, job, now), *_group(store, job)]
        case State.QUEUED:
            holds = _not_due(store, job, now)
        case State.WAITING:
            return [_waiting(store, job, now), *_group(store, job)]
        case State.RUNNING:
            return [*_running(store, job, now), *_troubles(store, job, store.list_workers())]
        case _:
            # Causes that would make a resume fail come first: the list is in the order of what to do.
            delays = _not_due(store, job, now) if job.state is State.PAUSED else []
            return [*_over_budget(store, job), *_group(store, job), _resting(store, job, now), *delays]
    holds += _paused(job, store.list_pauses(), now)
    holds += _lane(store, job, now)
    holds += limit_holds(store.limits_of(job.gate), now)
    cards = store.list_workers()
    holds += _workers(job, cards)
    holds += _troubles(store, job, cards)
    return holds or [_turn(store, job, cards)]


# -- its own state -----------------------------------------------------------------------------------------------------
def _resting(store: JobStore, job: Job, now: datetime) -> Hold:
    ago = "" if job.finished_at is None else f" {span(now - job.finished_at)} ago"
    suffix = why(job.error or job.reason)
    if job.state is State.SUCCEEDED:
        return Hold("resting", f"it succeeded{ago}", "retry makes a new job like it")
    if job.state is State.CANCELLED:
        detail = f"it was cancelled{ago}{by(store.last_actor(job.id, CANCELS))}{suffix}"
        return Hold("resting", detail, "retry makes a new job like it")
    if job.state is State.PAUSED:
        return Hold("resting", f"it is paused{by(store.last_actor(job.id, PAUSES))}{suffix}", "resume it")
    ended = "timed out" if job.state is State.TIMED_OUT else "failed"
    if not job.policy.queueing:
        return Hold("resting", f"it {ended}{ago}{suffix}", "it is not queued: call app.run_now again")
    if job.halts_lane:
        detail = f"it {ended}{ago} and halts lane {job.lane!r}{suffix}"
        return Hold("resting", detail, "resume it, or skip it to let the lane go on")
    return Hold("resting", f"it {ended}{ago}{suffix}", "resume it")


def _over_budget(store: JobStore, job: Job) -> list[Hold]:
    """List exhausted budgets: the store refuses a resume until they are raised."""
    if job.state in FINAL or job.policy.on_breach == "allow":
        return []
    return [
        Hold(
            "budget",
            f"it is over budget: {line.describe()}",
            f"raise it with job.top_up({line.unit}=…), then resume it"
            if line.scope == "job"
            else f"raise it with app.group({line.name!r}).budget({line.unit}=…), then resume it",
        )
        for line in store.budget(job.id)
        if line.exhausted and line.scope != "attempt"  # the budget of its next attempt begins at 0
    ]


def _group(store: JobStore, job: Job) -> list[Hold]:
    """Name a group on hold: its jobs cannot be released, answered, resumed or retried."""
    group = None if job.group is None or job.state in FINAL else store.group(job.group)
    if group is None or group.state != "held":
        return []
    detail = f"group {group.name!r} is on hold{by(group.changed_by)}{why(group.reason)}"
    return [Hold("group_held", detail, f"lift it: app.group({group.name!r}).release()")]


def _running(store: JobStore, job: Job, now: datetime) -> list[Hold]:
    also = f"; {job.stop_requested.value} was requested" if job.stop_requested else ""
    if job.worker is None or job.lease_expires_at is None:
        return _without_worker(store, job, also)
    progress = store.progress(job.id)
    if progress is not None:
        also = f"; last progress {span(now - progress.at)} ago ({first_line(str(progress))}){also}"
    left = job.lease_expires_at - now
    for_ = "" if job.started_at is None else f" for {span(now - job.started_at)}"
    where = f"it has been running on {job.worker}{for_}"
    if left.total_seconds() < 0:
        return [
            Hold(
                "running",
                f"{where}, but the lease ran out {span(-left)} ago{also}",
                "a live worker takes it over; start one if there is none",
            )
        ]
    return [Hold("running", f"{where}; its lease has {span(left)} left{also}")]


def _without_worker(store: JobStore, job: Job, also: str) -> list[Hold]:
    site = f" at {job.execution_site}" if job.execution_site else ""
    detail = f"its worker is gone; its execution{site} may still be running{also}"
    if not store.owns_execution(job.id, job.seq, job.attempt):
        hold = Hold("awaiting_adoption", detail)
        detail = "the execution belongs to the database that this one was copied or restored from"
        remedy = f"to run the job again from here: leasehold executions abandon {job.id}"
        return [hold, Hold("no_site", detail, remedy)]
    hold = Hold("awaiting_adoption", detail, "a worker at that site will adopt it")
    serving = [
        card for card in store.list_workers() if not card.draining and job.execution_site in card.sites
    ]
    if serving:
        return [hold]
    detail = f"no live worker serves the site {job.execution_site!r}"
    remedy = f"start one at that site; if the site is gone for good: leasehold executions abandon {job.id}"
    return [hold, Hold("no_site", detail, remedy)]


def _pending(store: JobStore, job: Job) -> list[Hold]:
    held = [Hold("pending", "it has been on hold since it was enqueued", "release it")] if job.held else []
    if not job.unmet:
        return held
    unmet = [
        one for one in store.relatives(job.id, MOST_PARENTS) if one.relation == "waits_for" and not one.met
    ]
    waits = [_parent(one) for one in unmet]
    if job.unmet > len(waits):
        others = f"{job.unmet - len(waits)} more job(s)" if waits else f"{job.unmet} other job(s)"
        waits.append(
            Hold("parent", f"it waits for {others} to end", f"leasehold jobs show {job.id} lists them")
        )
    return [*held, *waits]


def _parent(parent: Relative) -> Hold:
    remedy = {
        State.PAUSED: f"resume or cancel {parent.id}",
        State.WAITING: f"answer its question: leasehold why {parent.id}",
        State.PENDING: f"see what holds it: leasehold why {parent.id}",
        State.QUEUED: f"see what holds it: leasehold why {parent.id}",
    }.get(parent.state, "wait for its end, or cancel it")
    without = ", and will be cancelled if that does not succeed" if parent.on_failure == "cancel" else ""
    return Hold(
        "parent", f"it waits for job {parent.id} ({parent.task}, {parent.state.value}){without}", remedy
    )


def _waiting(store: JobStore, job: Job, now: datetime) -> Hold:
    open_questions = [question for question in store.questions(job.id) if question.closed_at is None]
    if not open_questions:
        return Hold("waiting", "it waits for an answer", "answer it")
    texts = "; ".join(f"{question.key}: {first_line(question.text)}" for question in open_questions)
    ends = min(
        (question.expires_at for question in open_questions if question.expires_at is not None), default=None
    )
    until = "" if ends is None else f"; it goes on without one in {span(ends - now)}"
    remedy = (
        f"answer {open_questions[0].key!r}: leasehold questions answer {job.id} {open_questions[0].key} VALUE"
    )
    return Hold("waiting", f"it waits for an answer to {texts}{until}", remedy)


def _not_due(store: JobStore, job: Job, now: datetime) -> list[Hold]:
    if job.available_at <= now:
        return []
    detail = f"it is not due for {_until(job, now)}; {_why_delayed(store, job)}"
    limits = [(job.deadline_at, "time out"), (job.start_by if job.attempt == 0 else None, "be cancelled")]
    ends = [(at, word) for at, word in limits if at is not None and at <= job.available_at]
    # A paused job has no time limits until it is resumed.
    if ends and job.state is not State.PAUSED:
        at, word = min(ends)
        detail += f". It will {word} before that, at {instant(at)}"
    return [Hold("not_due", detail, "wait, or set another time: job.snooze(until=…)")]


def _until(job: Job, now: datetime) -> str:
    return f"{span(job.available_at - now)}, until {instant(job.available_at)}"


def _why_delayed(store: JobStore, job: Job) -> str:
    """Say why the job is not due yet. A snooze counts until the next attempt."""
    for entry in reversed(store.history(job.id)):
        if entry.event == "snoozed" and entry.from_state != State.RUNNING and entry.attempt == job.attempt:
            return f"it was snoozed{by(entry.actor)} {entry.detail}"
        if entry.event == "refused" and entry.attempt == job.attempt:
            return f"then it is tried again: {first_line(entry.detail)}"
    if not job.attempt:
        return "it was delayed"
    return f"attempt {job.attempt} ended without success{why(job.error)}"


# -- what holds it --------------------------------------------------------------------------------------------
def _paused(job: Job, pauses: list[PauseRecord], now: datetime) -> list[Hold]:
    names = {"queue": job.queue, "task": job.task}
    return [_pause(pause) for pause in pauses if names[pause.scope] == pause.name]


def _pause(pause: PauseRecord) -> Hold:
    scope = "queue" if pause.scope == "queue" else "task"
    until = f" until {instant(pause.until)}" if pause.until else ""
    return Hold(
        "queue_paused" if pause.scope == "queue" else "task_paused",
        f"{scope} {pause.name!r} is paused{until}{by(pause.paused_by)}{why(pause.reason)}",
        f"resume the {scope} {pause.name!r}",
    )


def _lane(store: JobStore, job: Job, now: datetime) -> list[Hold]:
    if job.lane is None:
        return []
    head, blocker = store.lane_front(job.lane)
    try:
        if blocker is not None and blocker != job.id:
            return [_blocked(job.lane, store.get(blocker))]
        if head is not None and head != job.id:
            before = store.get(head)
            place = _many(store.count_ahead(job, MOST_AHEAD), "job")
            detail = f"{place} ahead of it in lane {job.lane!r}; first is {head} ({before.task}, {before.state.value})"
            if before.available_at > now:
                detail += f", which is not due for {_until(before, now)}"
            return [
                Hold("lane_order", detail, f"see what holds that one (leasehold why {head}), or cancel it")
            ]
    except JobNotFound:
        pass  # pruned since we read its id: it holds nothing
    return []


def _blocked(lane: str, blocker: Job) -> Hold:
    named = f"job {blocker.id} ({blocker.task})"
    if blocker.state is State.RUNNING:
        return Hold(
            "lane_blocked", f"{named} runs in lane {lane!r}", "one at a time: wait for it, or cancel it"
        )
    remedy = {
        State.WAITING: f"answer its question: leasehold why {blocker.id}",
        State.PAUSED: f"resume or cancel {blocker.id}",
    }.get(blocker.state, f"resume {blocker.id}, or skip it to let the lane go on without it")
    word = blocker.state.value.replace("_", " ")
    reason = why(blocker.error or blocker.reason)
    return Hold("lane_blocked", f"lane {lane!r} is blocked by {named}, {word}{reason}", remedy)


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
    if not any(job.task in card.tasks for card in serving):
        return [
            Hold(
                "no_handler",
                f"none of the {len(serving)} live worker(s) of queue {job.queue!r} knows the task {job.task!r}",
                "start a worker whose app registers it",
            )
        ]
    return []


def _troubles(store: JobStore, job: Job, cards: list[WorkerCard]) -> list[Hold]:
    """What keeps workers from this job, as they reported: their own problems, and those with the job's tenant."""
    remedy = "see leasehold workers, and leasehold doctor"
    troubles: dict[str, list[str]] = {}
    for card in cards:
        takes = job.worker == card.name or (
            job.worker is None and not card.draining and job.queue in card.queues and job.task in card.tasks
        )
        for problem in card.problems:
            if takes if problem.tenant is None else problem.tenant == store.tenant:
                troubles.setdefault(problem.text, []).append(card.name)
    return [
        Hold("worker_trouble", f"{_some(names, 'worker')} in trouble: {text}", remedy)
        for text, names in troubles.items()
    ]


def _some(names: list[str], what: str) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{what} {names[0]}{more} {'are' if more else 'is'}"


def _turn(store: JobStore, job: Job, cards: list[WorkerCard]) -> Hold:
    """Say what is ahead of a job that nothing else holds."""
    serving = [
        card for card in cards if not card.draining and job.queue in card.queues and job.task in card.tasks
    ]
    places = sum(card.concurrency for card in serving)
    taken = sum(card.running for card in serving)
    ahead = store.count_ahead(job, MOST_AHEAD) if job.lane is None else 0
    full = f"{taken} of the {places} places of its {len(serving)} worker(s) are taken"
    if ahead:
        detail = f"{_many(ahead, 'due job')} ahead of it in queue {job.queue!r}; {full}"
        return Hold("position", detail, "wait, add a worker, or give it a higher priority")
    if taken >= places > 0:
        return Hold("busy", f"it is next; {full}", "wait, or add a worker")
    return Hold("nothing", "nothing holds it up: a free worker will take it at once")


def _many(count: int, what: str) -> str:
    more = "or more " if count >= MOST_AHEAD else ""
    return f"{count:,} {more}{what}{'s are' if count != 1 else ' is'}"


# -- limits ------------------------------------------------------------------------------------------------------------

MOST_HOLDERS = 3
"""Holders that an explanation names; for the rest it says "and others"."""


def limit_holds(limits: GateLimits, now: datetime) -> list[Hold]:
    holds = [_full(slot) for slot in limits.slots if slot.full]
    if limits.rate is not None:
        holds += _rate(limits.rate, now)
    return holds


def _full(slot: SlotNeed) -> Hold:
    units = "1 unit" if slot.need == 1 else f"{slot.need} units"
    if slot.need > slot.limit:
        detail = f"it needs {units} of slot {slot.name!r}, which has {slot.limit}: it cannot start"
        return Hold("slot_full", detail, f"raise it: app.slots.set({slot.name!r}, {slot.need})")
    named = ", ".join(f"{holder.job_id} ({holder.task})" for holder in slot.holders[:MOST_HOLDERS])
    more = " and others" if len(slot.holders) > MOST_HOLDERS else ""
    detail = (
        f"it needs {units} of slot {slot.name!r}: {slot.used} of {slot.limit} are in use by {named}{more}"
    )
    return Hold("slot_full", detail, f"wait for one of them, or raise it: app.slots.set({slot.name!r}, …)")


def _rate(rate: RateRow, now: datetime) -> list[Hold]:
    if rate.closed:
        until = f" until {instant(rate.closed_until)}" if rate.closed_until else ""
        detail = f"rate {rate.key!r} is closed{until}{by(rate.closed_by)}{why(rate.closed_reason)}"
        return [Hold("rate_closed", detail, f"open it: app.rates.open({rate.key!r})")]
    if rate.next_in:
        opens = span(timedelta(seconds=rate.next_in))
        detail = f"rate {rate.key!r} ({rate.limit}) lets the next job start in {opens}"
        return [Hold("rate_spent", detail, f"wait, or raise it: app.rates.set({rate.key!r}, …)")]
    return []


# -- wording -----------------------------------------------------------------------------------------------------------


def instant(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def span(length: timedelta) -> str:
    seconds = max(0.0, length.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def by(actor: str | None) -> str:
    return f" by {actor}" if actor else ""


def why(reason: str | None) -> str:
    return f": {first_line(reason)}" if reason else ""
