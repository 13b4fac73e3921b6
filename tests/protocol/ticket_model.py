"""The tickets of claim.md on PostgreSQL: one lane, claims that decide on an old snapshot, verbs that commit meanwhile.

A claim of lane jobs is one statement with one snapshot. It locks the tickets it can see, finds the lane's head in
that snapshot, takes the head's row if nobody else has it, and deletes tickets on the evidence of the snapshot, however
old it is by then. Here each of these is a step of its own, so that anything may commit in between. The rule that keeps
lanes awake: *whoever commits a lane job into a state that does not block the lane writes a ticket in the same
transaction, without looking; only the claim deletes, and only tickets it has locked.*

Jobs are numbered in the order of their lane, (lane_at, seq). A job that is enqueued late, after one behind it, is an
enqueue whose transaction stayed open: it has its place before it can be seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.protocol.explorer import Move

UNBORN, QUEUED, RUNNING, PAUSED, HALTED, PASSED, DONE = (
    "unborn",
    "queued",
    "running",
    "paused",
    "halted",  # failed or timed_out, and the lane waits for it
    "passed",  # resolved: failed, and the lane goes on
    "done",  # succeeded or cancelled
)
NOBODY = -1
NOW = -1  # a ticket that is due; otherwise the job whose due time it shares


class Job(NamedTuple):
    state: str = QUEUED
    joined: bool = True  # lane_at has come: a job delayed at enqueue is not in the lane before
    due: bool = True  # available_at has come: false in backoff
    holds_lane: bool = False  # set by the claim, cleared when the lane goes on without it
    token: int = 0  # moved on by the claim, and by nothing else


class Ticket(NamedTuple):
    due_with: int = NOW
    locked_by: int = NOBODY
    seen_by: frozenset[int] = frozenset()  # the claims in whose snapshot it was due


class Claim(NamedTuple):
    """A claim in flight: what it saw, and which row it has locked."""

    snapshot: tuple[Job, ...]
    holds_tickets: bool = False
    takes: int = NOBODY


class Budget(NamedTuple):
    retries: int = 0
    halts: int = 0
    pauses: int = 0
    cancels: int = 0
    revivals: int = 0


class State(NamedTuple):
    jobs: tuple[Job, ...]
    tickets: tuple[Ticket, ...]
    claims: tuple[Claim | None, ...]  # one per claimer
    verb: tuple[str, int, bool] | None  # a transaction of another party that has its row locked
    budget: Budget


@dataclass(frozen=True)
class LaneSetup:
    name: str
    jobs: tuple[Job, ...]
    budget: Budget
    claimers: int = 2
    without: frozenset[str] = field(default_factory=frozenset)


GUARDS = {
    "settle writes a ticket without looking": "an enqueue whose ticket a claim is just dropping is missed",
    "a retry writes a ticket": "a job in backoff is never looked at again",
    "a retry's ticket is due with its job": "a ticket seen early is dropped as not due",
    "cancel writes a ticket": "the cancelled job was the head in backoff; the next one sleeps",
    "resume writes a ticket": "the resumed job sleeps",
    "skip writes a ticket": "the jobs behind the resolved one sleep",
    "enqueue writes a ticket": "the new job sleeps",
    "claim deletes only tickets it has locked": "a ticket written after the snapshot is dropped on older evidence",
    "claim keeps the ticket of a head it could not take": "whoever has the row locked may give it back unchanged",
    "claim takes the head or nobody": "the second of the lane overtakes a head whose row is locked",
    "claim looks at the row again under its lock": "a job that was cancelled since the snapshot is run",
    "claim compares the token under the lock": "a row that was run, resolved and resumed since looks unchanged",
    "claim sees who blocks the lane": "a job starts behind a halted one",
    "a head in backoff is the head": "the next job overtakes a retry",
    "a started job is the head": "a job enqueued late overtakes a started one",
    "the unique index covers running": "two claims with two heads both win",
    "the unique index covers whoever holds the lane": "a slow claim starts the next job behind a failed one",
}


class TicketModel:
    def __init__(self, setup: LaneSetup) -> None:
        self.setup = setup
        self.without = setup.without
        # A mutant is judged by the rules as they should be, or the yardstick would bend with what it measures.
        self.as_promised = TicketModel(replace(setup, without=frozenset())) if setup.without else self

    def initial(self) -> State:
        jobs = self.setup.jobs
        tickets = [Ticket(NOW if job.due else n) for n, job in enumerate(jobs) if job.state == QUEUED]
        return State(jobs, tuple(sorted(tickets)), (None,) * self.setup.claimers, None, self.setup.budget)

    def finished(self, state: State) -> bool:
        return all(job.state in (DONE, PASSED) for job in state.jobs)

    def counts_as_progress(self, state: State, after: State) -> bool:
        return after.budget is state.budget

    def moves(self, state: State) -> Iterator[Move]:
        yield from self._time(state)
        yield from self._verbs(state)
        for claimer, claim in enumerate(state.claims):
            if claim is None:
                yield from self._look(state, claimer)
            elif claim.takes != NOBODY:
                yield self._commit(state, claimer, claim)
            elif claim.holds_tickets:
                yield self._decide(state, claimer, claim)
            else:
                yield from self._lock(state, claimer)

    # -- the claim, step by step --

    def _look(self, state: State, claimer: int) -> Iterator[Move]:
        """The snapshot: jobs as they are, and every ticket that is due."""
        if not any(t.due_with == NOW and t.locked_by == NOBODY for t in state.tickets):
            return
        tickets = [
            t._replace(seen_by=t.seen_by | {claimer}) if t.due_with == NOW else t for t in state.tickets
        ]
        yield ("snapshot", f"c{claimer}"), with_claim(state, claimer, Claim(state.jobs), tickets), None

    def _lock(self, state: State, claimer: int) -> Iterator[Move]:
        """SKIP LOCKED, and only what the snapshot shows: all of it, or (LIMIT) one ticket only."""
        free = [t for t in state.tickets if claimer in t.seen_by and t.locked_by == NOBODY]
        if not free:
            yield ("no ticket left", f"c{claimer}"), without_claim(state, claimer), None
        holding = state.claims[claimer]._replace(holds_tickets=True)
        for chosen in {(t,) for t in free} | ({tuple(free)} if free else set()):
            tickets = list(state.tickets)
            for ticket in chosen:
                tickets.remove(ticket)
                tickets.append(ticket._replace(locked_by=claimer))
            yield (
                ("lock tickets", f"c{claimer}", len(chosen)),
                with_claim(state, claimer, holding, tickets),
                None,
            )

    def _decide(self, state: State, claimer: int, claim: Claim) -> Move:
        who = f"c{claimer}"
        head = self._head(claim.snapshot)
        if head == NOBODY or not claim.snapshot[head].due or self._blocked(claim.snapshot):
            return ("drop tickets", who), self._drop_tickets(state, claimer), None
        if self._row_is_locked(state, head):
            if "claim takes the head or nobody" in self.without:
                head = self._head(claim.snapshot, passing=head)
                if head != NOBODY and not self._row_is_locked(state, head):
                    return ("take the second", who, f"j{head}"), self._take(state, claimer, claim, head), None
            return ("head is locked", who), self._give_up(state, claimer), None
        if self._has_changed(claim.snapshot[head], state.jobs[head]):
            return ("head has changed", who), self._give_up(state, claimer), None
        return ("take the head", who, f"j{head}"), self._take(state, claimer, claim, head), None

    def _has_changed(self, seen: Job, now: Job) -> bool:
        """The second test, under the row's lock. Queued and due is not enough: a row may have been run, resolved and
        resumed since the snapshot, and stand behind another one by now."""
        if "claim looks at the row again under its lock" in self.without:
            return False
        if now.token != seen.token and "claim compares the token under the lock" not in self.without:
            return True
        return not (now.state == QUEUED and now.due)

    def _commit(self, state: State, claimer: int, claim: Claim) -> Move:
        taken, jobs = claim.takes, state.jobs
        if any(self._index_refuses(job) for n, job in enumerate(jobs) if n != taken):
            return ("claim refused by the index", f"c{claimer}"), without_claim(state, claimer), None
        broken = self._broken_by_claim(state, claim)
        running = jobs[taken]._replace(state=RUNNING, holds_lane=True, token=jobs[taken].token + 1)
        claimed = with_job(self._drop_tickets(state, claimer), taken, running)
        return ("claim", f"c{claimer}", f"j{taken}"), claimed, broken

    def _index_refuses(self, job: Job) -> bool:
        """The partial UNIQUE index on (lane): the tripwire that no snapshot can pass by."""
        if job.state == RUNNING:
            return "the unique index covers running" not in self.without
        return job.holds_lane and "the unique index covers whoever holds the lane" not in self.without

    def _head(self, jobs: tuple[Job, ...], passing: int = NOBODY) -> int:
        """The started job that still holds the lane, else the first in order; due or not."""
        best, best_place = NOBODY, (True, len(jobs))
        for n, job in enumerate(jobs):
            if job.state != QUEUED or not job.joined or n == passing:
                continue
            if not job.due and "a head in backoff is the head" in self.without:
                continue
            place = (not job.holds_lane or "a started job is the head" in self.without, n)
            if place < best_place:
                best, best_place = n, place
        return best

    def _blocked(self, jobs: tuple[Job, ...]) -> bool:
        if "claim sees who blocks the lane" in self.without:
            return any(job.state == RUNNING for job in jobs)
        return any(job.state in (RUNNING, PAUSED, HALTED) for job in jobs)

    def _take(self, state: State, claimer: int, claim: Claim, head: int) -> State:
        return with_claim(state, claimer, claim._replace(takes=head), state.tickets)

    def _give_up(self, state: State, claimer: int) -> State:
        """The head could not be taken: its tickets stay, somebody looks again."""
        if "claim keeps the ticket of a head it could not take" in self.without:
            return self._drop_tickets(state, claimer)
        return without_claim(state, claimer)

    def _drop_tickets(self, state: State, claimer: int) -> State:
        if "claim deletes only tickets it has locked" in self.without:
            left = [t for t in state.tickets if t.locked_by not in (claimer, NOBODY) or t.due_with != NOW]
        else:
            left = [t for t in state.tickets if t.locked_by != claimer]
        return without_claim(state._replace(tickets=tuple(left)), claimer)

    def _row_is_locked(self, state: State, job: int) -> bool:
        if state.verb is not None and state.verb[1] == job:
            return True
        return any(claim is not None and claim.takes == job for claim in state.claims)

    # -- everybody else --

    def _time(self, state: State) -> Iterator[Move]:
        for n, job in enumerate(state.jobs):
            if job.state == QUEUED and not job.due:
                tickets = [t._replace(due_with=NOW) if t.due_with == n else t for t in state.tickets]
                due = with_job(state, n, job._replace(due=True, joined=True))
                yield ("becomes due", f"j{n}"), due._replace(tickets=tuple(sorted_tickets(tickets))), None

    def _verbs(self, state: State) -> Iterator[Move]:
        budget = state.budget
        if state.verb is not None:
            yield from self._finish_verb(state)
        for n, job in enumerate(state.jobs):
            if self._row_is_locked(state, n):
                continue  # a verb waits for the row; that is the same as coming later
            who = f"j{n}"
            if job.state == UNBORN:
                yield ("enqueue", who), self._written(state, n, job._replace(state=QUEUED), "enqueue"), None
            if job.state == RUNNING:
                yield from self._settle(state, n, job)
            if job.state == QUEUED and budget.pauses:
                paused = with_job(state, n, job._replace(state=PAUSED))
                yield ("pause", who), spend(paused, "pauses"), None
            if job.state == PAUSED:
                resumed = job._replace(state=QUEUED, due=True, joined=True)
                yield ("resume", who), self._written(state, n, resumed, "resume"), None
            if job.state in (HALTED, PASSED) and budget.revivals:
                revived = self._written(state, n, job._replace(state=QUEUED, due=True), "resume")
                yield ("resume after failure", who), spend(revived, "revivals"), None
            if job.state == HALTED:
                passed = job._replace(state=PASSED, holds_lane=False)
                yield ("skip", who), self._written(state, n, passed, "skip"), None
            if job.state in (QUEUED, PAUSED, HALTED) and budget.cancels and state.verb is None:
                yield ("begin cancel", who), spend(state._replace(verb=("cancel", n, True)), "cancels"), None

    def _finish_verb(self, state: State) -> Iterator[Move]:
        verb, n, sees_next = state.verb
        open_again = state._replace(verb=None)
        done = state.jobs[n]._replace(state=DONE, due=True, holds_lane=False)
        if verb == "cancel":
            yield ("cancel", f"j{n}"), self._written(open_again, n, done, "cancel"), None
            yield ("cancel rolled back", f"j{n}"), open_again, None
        elif sees_next:
            yield ("settle: done", f"j{n}"), self._written(open_again, n, done, "settle"), None
        else:
            yield ("settle: done, no ticket", f"j{n}"), with_job(open_again, n, done), None

    def _settle(self, state: State, n: int, job: Job) -> Iterator[Move]:
        who, budget = f"j{n}", state.budget
        if "settle writes a ticket without looking" in self.without:
            if state.verb is None:
                sees_next = any(other.state == QUEUED for other in state.jobs)
                yield ("settle looks", who), state._replace(verb=("settle", n, sees_next)), None
        else:
            done = job._replace(state=DONE, holds_lane=False)
            yield ("settle: done", who), self._written(state, n, done, "settle"), None
        if budget.retries:
            due_with = n if "a retry's ticket is due with its job" not in self.without else NOW
            retried = self._written(state, n, job._replace(state=QUEUED, due=False), "a retry", due_with)
            yield ("settle: retry", who), spend(retried, "retries"), None
        if budget.halts:
            halted = with_job(state, n, job._replace(state=HALTED))
            yield ("settle: halt", who), spend(halted, "halts"), None

    def _written(self, state: State, n: int, job: Job, verb: str, due_with: int = NOW) -> State:
        """The row and, in the same transaction, its ticket."""
        after = with_job(state, n, job)
        if f"{verb} writes a ticket" in self.without:
            return after
        return after._replace(tickets=tuple(sorted_tickets([*after.tickets, Ticket(due_with)])))

    # -- promises --

    def _broken_by_claim(self, state: State, claim: Claim) -> str | None:
        taken = claim.takes
        if state.jobs[taken].state != QUEUED:
            return f"a {state.jobs[taken].state} job was started"
        for n, job in enumerate(state.jobs):
            if n == taken:
                continue
            if job.holds_lane and job.state != RUNNING:
                return f"a job started though a {job.state} one holds the lane"
            # A pause of another job that commits during the claim may as well have come after it.
            if job.state in (PAUSED, HALTED) and claim.snapshot[n].state == job.state:
                return f"a job started behind a {job.state} one"
            waited = job.state == QUEUED and claim.snapshot[n].state == QUEUED and claim.snapshot[n].joined
            if waited and n < taken and not state.jobs[taken].holds_lane:
                return "a job overtook an earlier one of its lane"
        return None

    def broken_promise(self, state: State) -> str | None:
        if sum(job.state == RUNNING for job in state.jobs) > 1:
            return "two jobs of one lane are running"
        if any(claim is not None for claim in state.claims):
            return None  # a claim in flight either takes the head or leaves what it found
        head = self.as_promised._head(state.jobs)
        awake = any(t.due_with == NOW for t in state.tickets)
        if (
            head != NOBODY
            and state.jobs[head].due
            and not self.as_promised._blocked(state.jobs)
            and not awake
        ):
            return "the lane is free, its head is due, and no ticket says so"
        return None


def with_job(state: State, n: int, job: Job) -> State:
    return state._replace(jobs=(*state.jobs[:n], job, *state.jobs[n + 1 :]))


def with_claim(state: State, claimer: int, claim: Claim, tickets: list[Ticket] | tuple[Ticket, ...]) -> State:
    claims = (*state.claims[:claimer], claim, *state.claims[claimer + 1 :])
    return state._replace(claims=claims, tickets=tuple(sorted_tickets(tickets)))


def without_claim(state: State, claimer: int) -> State:
    """The claim has ended, committed or rolled back: what it locked and has not deleted is free again."""
    tickets = [
        Ticket(t.due_with, NOBODY if t.locked_by == claimer else t.locked_by, t.seen_by - {claimer})
        for t in state.tickets
    ]
    claims = (*state.claims[:claimer], None, *state.claims[claimer + 1 :])
    return state._replace(claims=claims, tickets=tuple(sorted_tickets(tickets)))


def sorted_tickets(tickets: list[Ticket] | tuple[Ticket, ...]) -> list[Ticket]:
    """Tickets have no name: two states that differ only in their order are one."""
    return sorted(tickets, key=lambda t: (t.due_with, t.locked_by, sorted(t.seen_by)))


def spend(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


LATE, DELAYED = Job(UNBORN), Job(QUEUED, joined=False, due=False)

SETUPS = (
    LaneSetup("two jobs", (Job(), Job()), Budget(halts=1, pauses=1, cancels=1)),
    LaneSetup("two jobs, retried", (Job(), Job()), Budget(retries=1, pauses=1)),
    LaneSetup("enqueued late", (LATE, Job()), Budget(retries=1, halts=1, cancels=1)),
    LaneSetup("enqueued in order", (Job(), LATE), Budget(retries=1, cancels=1)),
    LaneSetup("delayed", (Job(), DELAYED), Budget(retries=1, cancels=1)),
    LaneSetup("resolved and resumed", (Job(), Job()), Budget(halts=2, revivals=1, retries=1)),
    LaneSetup("resumed behind another", (LATE, Job()), Budget(retries=1, halts=1, revivals=1)),
    LaneSetup("three jobs", (Job(), LATE, Job()), Budget(retries=1, cancels=1), claimers=1),
)

SOAK_SETUPS = (
    LaneSetup("two jobs, every verb", (Job(), Job()), Budget(retries=1, halts=1, pauses=1, cancels=1)),
    LaneSetup("three jobs, two claims", (LATE, Job(), LATE), Budget(retries=1, halts=1, cancels=1)),
    # All of these verbs in one setup pass 8 million states; a few at a time can be walked whole.
    LaneSetup("resumed, retried twice", (LATE, Job()), Budget(retries=2, halts=1, revivals=1)),
    LaneSetup("resumed and paused", (LATE, Job()), Budget(halts=1, pauses=1, revivals=1)),
    LaneSetup("resumed and cancelled", (LATE, Job()), Budget(retries=1, halts=1, cancels=1, revivals=1)),
)
