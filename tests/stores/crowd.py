"""Producers, workers, a renewer, reapers and operators, all at once on the same rows, and what each of them saw."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from leasehold.domain.errors import InvalidState, JobNotFound
from leasehold.domain.job import Grant, NewJob, Sighting
from leasehold.domain.outcome import Failure, HandedBack, Outcome, Snoozed, Success
from leasehold.domain.policy import Policy
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import new_id

LANES = 12
GROUPS = ("red", "blue")
SHORT_LEASE, LONG_LEASE = 1.0, 30.0
MOST_OPEN = 300
"""Jobs that producers keep ahead of the workers: few enough for everybody to meet on the same rows."""

POLICY = Policy(max_attempts=50, max_crashes=1000, backoff=0.0, on_failure="skip")


@dataclass
class Run:
    """A grant from the worker's own view: between the claim's answer and the settle's call."""

    grant: Grant
    started: float
    thaws: float | None = None
    """It is frozen until then: neither renewed nor settled."""
    ended: float = 0.0
    outcome: Outcome | None = None
    accepted: bool = False


@dataclass
class Ledger:
    """What the threads saw. Appends only; `lock` guards the rest."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: list[NewJob] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    held: dict[str, Run] = field(default_factory=dict)
    reaped: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    """How often each group's version must have moved, at the least."""
    settles: Counter[str] = field(default_factory=Counter)
    """Batches of successes that had a job of the group. What somebody has locked is passed over and settled with care,
    in a second transaction, which moves the version once more."""
    resumed: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)

    def notify(self, groups: set[str | None]) -> None:
        with self.lock:
            self.reported.update(name for name in groups if name is not None)


class Crowd:
    def __init__(self, open_store: Callable[[], JobStore], seconds: float) -> None:
        self.stores = [open_store() for _ in range(3)]
        self.ledger = Ledger()
        self._until = time.monotonic() + seconds
        self._group_of: dict[str, str | None] = {}

    def work(self) -> None:
        """Until the time is over, or somebody met an error."""
        roles = [
            self._produce,
            self._produce,
            self._run,
            self._run,
            self._run,
            self._renew,
            self._reap,
            self._reap,
        ]
        roles += [self._operate, self._operate]
        threads = [
            threading.Thread(target=self._guarded, args=(role, number), name=f"{role.__name__}-{number}")
            for number, role in enumerate(roles)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "a thread hangs"

    def drain(self, seconds: float) -> None:
        """Everything comes to rest: no lane sleeps, no lease is forgotten."""
        store, ledger = self.stores[0], self.ledger
        for job in store.list_jobs(Filter(states=(State.PAUSED, State.FAILED)), limit=500).jobs:
            self._operate_on(store, "resume", job.id)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._settle(store, [*ledger.held.values()], lambda: Success())
            runs = self._claim(store, "drain", 500)
            if runs:
                continue
            counts = store.count()
            if not any(counts[state] for state in (State.QUEUED, State.RUNNING, State.PAUSED)):
                return
            self._reap(store, Random(0), "drain")
            for job in store.list_jobs(Filter(states=(State.PAUSED,)), limit=500).jobs:
                self._operate_on(store, "resume", job.id)
        raise AssertionError(f"not drained after {seconds:g} s: {store.count()}")

    def _guarded(self, role: Callable[[JobStore, Random, str], None], number: int) -> None:
        store, random = self.stores[number % len(self.stores)], Random(number)
        try:
            while time.monotonic() < self._until and not self.ledger.errors:
                role(store, random, f"w{number}")
        except BaseException as error:
            self.ledger.errors.append(error)

    # -- roles -----------------------------------------------------------------------------------------------------
    def _produce(self, store: JobStore, random: Random, name: str) -> None:
        if store.count(cap=MOST_OPEN)[State.QUEUED] == MOST_OPEN:
            time.sleep(0.01)
            return
        batch = [self._new_job(random, name) for _ in range(random.choice([1, 1, 5, 20]))]
        self._group_of.update((job.id, job.group) for job in batch)
        answers = store.enqueue(batch)
        assert all(answer.created for answer in answers)
        self.ledger.calls["enqueue"] += 1
        self.ledger.notify({job.group for job in batch})
        self.ledger.made += batch

    def _new_job(self, random: Random, name: str) -> NewJob:
        """A lane has one producer: only then is the order in it what the producer saw."""
        return NewJob(
            id=new_id(),
            task="work",
            args="{}",
            priority=random.choice([0, 0, 0, 7]),
            lane=f"{name}-{random.randrange(LANES)}" if random.random() < 0.5 else None,
            group=random.choice(GROUPS) if random.random() < 0.3 else None,
            lease_seconds=SHORT_LEASE if random.random() < 0.5 else LONG_LEASE,
            policy=POLICY,
        )

    def _run(self, store: JobStore, random: Random, name: str) -> None:
        runs = self._claim(store, name, random.choice([1, 5, 20]), random)
        time.sleep(random.uniform(0.0, 0.02))
        self._settle(store, [run for run in runs if run.thaws is None], lambda: _outcome(random))
        # Thawed after their leases: reaped by now, or settled late.
        thawed = [
            run for run in list(self.ledger.held.values()) if run.thaws and run.thaws < time.monotonic()
        ]
        self._settle(store, thawed, lambda: _outcome(random))

    def _renew(self, store: JobStore, random: Random, name: str) -> None:
        """Whatever anybody holds, and a few leases that are over: the same rows that are being settled."""
        held = [run.grant for run in list(self.ledger.held.values()) if run.thaws is None]
        stale = [run.grant for run in self.ledger.runs[-50:] if run.thaws is None]
        store.renew({grant.id: grant.token for grant in [*stale, *held]})
        self.ledger.calls["renew"] += 1
        time.sleep(0.002)

    def _reap(self, store: JobStore, random: Random, name: str) -> None:
        seen: list[Sighting] = store.sight_overdue()
        time.sleep(SHORT_LEASE / 3 + 0.01)
        reaped = store.reap(seen)
        self.ledger.calls["reap"] += 1
        self.ledger.notify({self._group_of[job.id] for job in reaped})
        with self.ledger.lock:
            self.ledger.reaped.update(job.id for job in reaped)

    def _operate(self, store: JobStore, random: Random, name: str) -> None:
        """Groups are left alone: their versions are counted from the outside."""
        recent = [job.id for job in self.ledger.made[-100:] if job.group is None]
        paused = [job.id for job in store.list_jobs(Filter(states=(State.PAUSED,))).jobs]
        if paused and random.random() < 0.5:
            self._operate_on(store, "resume", random.choice(paused))
        elif recent:
            verb = random.choice(["pause", "pause", "resume", "finish", "cancel"])
            self._operate_on(store, verb, random.choice(recent))
        time.sleep(random.uniform(0.0, 0.02))

    def _operate_on(self, store: JobStore, verb: str, job_id: str) -> None:
        self.ledger.calls[verb] += 1
        try:
            getattr(store, verb)(job_id)
        except (InvalidState, JobNotFound) as refusal:
            self.ledger.refusals[
                f"{verb}: {refusal.state if isinstance(refusal, InvalidState) else 'missing'}"
            ] += 1
        else:
            if verb == "resume":
                self.ledger.resumed.add(job_id)

    # -- leases ----------------------------------------------------------------------------------------------------
    def _claim(self, store: JobStore, worker: str, limit: int, random: Random | None = None) -> list[Run]:
        """Given randomness, some freeze: they are neither renewed nor settled in time."""
        grants = store.claim(worker, ["default"], limit)
        now = time.monotonic()
        runs = [Run(grant, now) for grant in grants]
        for run in runs:
            if random is not None and run.grant.lease_seconds == SHORT_LEASE and random.random() < 0.1:
                run.thaws = now + random.uniform(0.9, 3.0)
        self.ledger.calls["claim"] += 1
        with self.ledger.lock:
            self.ledger.runs += runs
            self.ledger.held.update((_name(run.grant), run) for run in runs)
        return runs

    def _settle(self, store: JobStore, runs: list[Run], outcome: Callable[[], Outcome]) -> None:
        with self.ledger.lock:
            mine = [run for run in runs if self.ledger.held.pop(_name(run.grant), None) is not None]
        # Of one job only one at a time: the answer names jobs, not tokens.
        batches: dict[int, list[Run]] = defaultdict(list)
        seen: Counter[str] = Counter()
        for run in mine:
            batches[seen[run.grant.id]].append(run)
            seen[run.grant.id] += 1
        for batch in batches.values():
            self._settle_batch(store, batch, outcome)

    def _settle_batch(self, store: JobStore, batch: list[Run], outcome: Callable[[], Outcome]) -> None:
        for run in batch:
            run.outcome, run.ended = outcome(), time.monotonic()
        answer = store.settle([Ending(r.grant.id, r.grant.token, r.outcome or Success()) for r in batch])
        self.ledger.calls["settle"] += 1
        for run in batch:
            run.accepted = run.grant.id in answer.accepted
            assert run.accepted != (run.grant.id in answer.fenced)
        for successes in (True, False):
            done = [r for r in batch if r.accepted and isinstance(r.outcome, Success) is successes]
            self.ledger.notify({run.grant.group for run in done})
            if successes:
                with self.ledger.lock:
                    self.ledger.settles.update({r.grant.group for r in done if r.grant.group})


def _name(grant: Grant) -> str:
    return f"{grant.id} {grant.token}"


def _outcome(random: Random) -> Outcome:
    return random.choice(
        [Success('{"n": 1}')] * 6
        + [Failure("broken"), Failure("broken"), HandedBack("drained"), Snoozed(0.05)]
    )
