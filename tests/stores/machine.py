"""The rules: random verbs, with every job, token and sighting ever seen, stale ones on purpose."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leasehold.domain import outcome as o
from leasehold.domain.checks.ids import make_id
from leasehold.domain.job import NewJob, Sighting
from leasehold.stores.results import Ending
from tests.stores import strategies as of
from tests.stores.draws import Draw, booleans, builds, integers, just, lists, one_of, sampled_from
from tests.stores.trio import AMPLE, Trace, Trio

T = TypeVar("T")
Rule = tuple[str, Callable[[Any], Any], Draw[dict[str, Any]]]
RULES: list[Rule] = []
"""Each as often as its weight says: left to themselves, most steps would look at jobs that nobody has claimed."""


def step(
    weight: int, when: Callable[[Any], Any] = lambda machine: True, **draws: Draw[Any]
) -> Callable[[T], T]:
    def register(method: T) -> T:
        RULES.extend([(method.__name__, when, builds(dict, **draws))] * weight)  # type: ignore[attr-defined]
        return method

    return register


def has_jobs(machine: StoreMachine) -> bool:
    return bool(machine.ids)


def has_tokens(machine: StoreMachine) -> bool:
    return bool(machine.tokens)


VERBS = (
    *(
        "enqueue",
        "claim",
        "claim_by_id",
        "renew",
        "record_site",
        "mark_started",
        "settle",
        "sight_overdue",
    ),
    *(
        "reap",
        "adopt",
        "find_leases_of",
        "read_settlements",
        "cancel",
        "pause",
        "finish",
        "resume",
        "skip",
        "snooze",
        "release",
    ),
    *(
        "answer",
        "retry",
        "pause_scope",
        "resume_scope",
        "list_pauses",
        "resume_lane",
        "get",
        "list_jobs",
        "count",
    ),
    "prune",
)


def has_orphans(machine: StoreMachine) -> bool:
    return any(job.orphan for job in machine.trio.model.jobs.values())


def has_leases(machine: StoreMachine) -> bool:
    return bool(machine.held())


class StoreMachine(RuleBasedStateMachine):
    trio: ClassVar[Trio]
    tally: ClassVar[Counter[str]] = Counter()
    seed: ClassVar[int] = 0
    """Of this run of Hypothesis, which likes to repeat itself: another seed, other verbs for the same draws."""
    trace: ClassVar[Trace] = []
    """What the latest sequence has called, for whoever wants to shorten it."""

    def __init__(self) -> None:
        super().__init__()
        self.trio.reset()
        self.trace.clear()
        self.ids: list[str] = []
        self.tokens: list[tuple[str, int]] = []
        self.sightings: list[Sighting] = []
        self.steps = 0
        self.salt = 0
        self.rules = RULES
        self.rolled: Counter[int] = Counter()

    def teardown(self) -> None:
        self.tally["sequences"] += 1
        self.tally["steps"] += self.steps

    def do(self, verb: str, *args: Any, **named: Any) -> Any:
        self.trace.append((verb, args, named))
        answer = self.trio.call(verb, *args, **named)
        self.tally[verb] += 1
        self.tally[f"{verb}: {_outcome(answer)}"] += 1
        return answer

    def pass_time(self, seconds: float) -> None:
        self.trace.append(("advance", (seconds,), {}))
        self.trio.call("advance", seconds)

    def remember(self, grants: Sequence[tuple[Any, ...]]) -> None:
        self.tokens += [(grant[0], grant[1]) for grant in grants]

    def held(self) -> list[tuple[str, int]]:
        return [(job.id, job.lease_token) for job in self.trio.model.jobs.values() if job.worker is not None]

    def new_job(self, fields: dict[str, Any]) -> NewJob:
        """Ids of one moment are in no order: first come, first served must not lean on them."""
        shuffled = hashlib.blake2b(str(len(self.ids)).encode(), digest_size=10).digest()
        self.ids.append(make_id(int(self.trio.clock.now().timestamp() * 1000), shuffled))
        return NewJob(id=self.ids[-1], args="{}", **fields)

    @initialize(salt=st.integers(0, 2**64))
    def begin(self, salt: int) -> None:
        """Every sequence leans towards a few verbs of its own."""
        self.salt = salt
        names = sorted({rule[0] for rule in RULES})
        focus = Random(f"{self.seed} {salt}").sample(names, 4)
        self.rules = RULES + [rule for rule in RULES if rule[0] in focus] * 4

    @rule(roll=st.integers(0, 2**64))
    def next_verb(self, roll: int) -> None:
        self.rolled[roll] += 1
        random = Random(f"{self.seed} {self.salt} {roll} {self.rolled[roll]}")
        name, _, draws = random.choice([rule for rule in self.rules if rule[1](self)])
        getattr(self, name)(**draws(random))

    @invariant()
    def rows_are_the_same(self) -> None:
        self.steps += 1
        self.trio.check()

    # -- time ------------------------------------------------------------------------------------------------------
    @step(6, seconds=sampled_from(of.STEPS))
    def advance(self, seconds: float) -> None:
        self.pass_time(seconds)

    # -- enqueue ---------------------------------------------------------------------------------------------------
    @step(5, fields=of.PLAIN)
    def enqueue_plain(self, fields: dict[str, Any]) -> None:
        self.do("enqueue", [self.new_job(fields)])

    @step(6, fields=of.LANED)
    def enqueue_into_a_lane(self, fields: dict[str, Any]) -> None:
        self.do("enqueue", [self.new_job(fields)])

    @step(3, batch=lists(one_of(of.PLAIN, of.LANED), 2, 4))
    def enqueue_many(self, batch: list[dict[str, Any]]) -> None:
        self.do("enqueue", [self.new_job(fields) for fields in batch])

    @step(5, fields=of.KEYED)
    def enqueue_unique(self, fields: dict[str, Any]) -> None:
        self.do("enqueue", [self.new_job(fields)])

    @step(4, has_jobs, batch=lists(one_of(of.PLAIN, of.LANED), 1, 3), picks=lists(of.PICKS, 3, 3), how=of.HOW)
    def enqueue_after(self, batch: list[dict[str, Any]], picks: list[list[int]], how: str) -> None:
        """Behind jobs that are there, have ended, are gone, or stand earlier in the batch."""
        jobs = []
        for fields, wanted in zip(batch, picks, strict=False):
            after = tuple(_pick(self.ids, pick) for pick in wanted)
            jobs.append(self.new_job({**fields, "after": after, "on_parent_failure": how}))
        self.do("enqueue", jobs)

    @step(1, has_jobs, fields=of.KEYED, picks=of.PICKS, how=of.HOW)
    def enqueue_unique_after(self, fields: dict[str, Any], picks: list[int], how: str) -> None:
        """And somebody behind it, who may have to wait for the holder of its key."""
        after = tuple(_pick(self.ids, pick) for pick in picks)
        first = self.new_job({**fields, "after": after, "on_parent_failure": how})
        second = self.new_job({"task": "work", "hold": False, "after": (first.id,)})
        self.do("enqueue", [first, second])

    @step(1, has_jobs, pick=of.PICK, fields=one_of(of.KEYED, of.PLAIN))
    def enqueue_again(self, pick: int, fields: dict[str, Any]) -> None:
        """After a lost reply. A pruned id makes a new job."""
        self.do("enqueue", [NewJob(id=_pick(self.ids, pick), args="{}", **fields | {"hold": False})])

    # -- claim -----------------------------------------------------------------------------------------------------
    @step(
        6, worker=of.OWNER, queues=of.SOME_QUEUES, limit=integers(1, 5), tasks=of.SOME_KINDS, idle=booleans()
    )
    def claim(self, worker: str, queues: list[str], limit: int, tasks: list[str] | None, idle: bool) -> None:
        """What is told of having been idle changes no answer."""
        self.remember(self.do("claim", worker, queues, limit, tasks, idle=idle))

    @step(5, worker=of.OWNER)
    def claim_everything(self, worker: str) -> None:
        """Brings every head that is due: no lane sleeps."""
        self.remember(self.do("claim", worker, of.QUEUES, AMPLE))

    @step(3, has_jobs, pick=of.PICK, worker=of.OWNER, sites=of.SOME_SITES, look=one_of(just(None), of.PICK))
    def claim_by_id(self, pick: int, worker: str, sites: list[str], look: int | None) -> None:
        sighting = None if look is None or not self.sightings else _pick(self.sightings, look)
        self._claim_by_id(_pick(self.ids, pick), worker, sites, sighting)

    def _claim_by_id(self, job_id: str, worker: str, sites: list[str], sighting: Sighting | None) -> None:
        answer = self.do("claim_by_id", job_id, worker, sites, sighting)
        if answer[0] == "granted":
            self.remember([answer[1:]])
        elif answer[2] is not None:
            self.sightings.append(answer[2])

    # -- hold ------------------------------------------------------------------------------------------------------
    @step(3, has_tokens, picks=of.PICKS)
    def renew(self, picks: list[int]) -> None:
        self.do("renew", dict(_pick(self.tokens, pick) for pick in picks))

    @step(1, has_tokens, pick=of.PICK, site=sampled_from(of.SITES))
    def record_site(self, pick: int, site: str) -> None:
        job_id, token = _pick(self.tokens, pick)
        self.do("record_site", job_id, token, site, f"run-{token}")

    @step(1, has_tokens, pick=of.PICK)
    def mark_started(self, pick: int) -> None:
        self.do("mark_started", *_pick(self.tokens, pick))

    @step(7, has_leases, pick=of.PICK, site=sampled_from(of.SITES))
    def run_outside(self, pick: int, site: str) -> None:
        job_id, token = _pick(self.held(), pick)
        self.do("record_site", job_id, token, site, f"run-{token}")
        self.do("mark_started", job_id, token)

    @step(4, has_tokens, pick=of.PICK, outcome=of.OUTCOME)
    def settle(self, pick: int, outcome: o.Outcome) -> None:
        self._settle([Ending(*_pick(self.tokens, pick), outcome)])

    @step(4, has_tokens, picks=of.PICKS, outcomes=lists(of.OUTCOME, 4, 4))
    def settle_many(self, picks: list[int], outcomes: list[o.Outcome]) -> None:
        tokens = list(dict.fromkeys(_pick(self.tokens, pick) for pick in picks))
        self._settle([Ending(*token, outcome) for token, outcome in zip(tokens, outcomes, strict=False)])

    @step(18, has_leases, pick=of.PICK, more=booleans(), outcome=of.OUTCOME)
    def settle_what_is_held(self, pick: int, more: bool, outcome: o.Outcome) -> None:
        held = self.held()
        chosen = held[: pick % 3 + 1] if more else [_pick(held, pick)]
        self._settle([Ending(job_id, token, outcome) for job_id, token in chosen])

    def _settle(self, endings: list[Ending]) -> None:
        mine = {(e.id, e.token): job for e in endings if (job := self.trio.model.mine(e.id, e.token))}
        flags = {token: job.stop_requested for token, job in mine.items()}
        self.do("settle", endings)
        for ending in endings:
            token = (ending.id, ending.token)
            how = f"{flags[token]} -> {mine[token].state}" if token in mine else "fenced"
            self.tally[f"settle {type(ending.outcome).__name__}: {how}"] += 1

    @step(1, has_tokens, picks=of.PICKS, worker=of.OWNER)
    def read_settlements(self, picks: list[int], worker: str) -> None:
        self.do("read_settlements", dict(_pick(self.tokens, pick) for pick in picks), worker)

    # -- recover ---------------------------------------------------------------------------------------------------
    @step(1)
    def sight_overdue(self) -> None:
        self.sightings += self.do("sight_overdue")

    @step(3, lambda self: self.sightings, picks=of.PICKS)
    def reap(self, picks: list[int]) -> None:
        chosen = list(dict.fromkeys(_pick(self.sightings, pick) for pick in picks))
        self.do("reap", chosen)

    @step(6, has_leases, worker=of.OWNER, sites=of.SOME_SITES, steal=booleans())
    def lose_every_lease(self, worker: str, sites: list[str], steal: bool) -> None:
        self.pass_time(31.0)
        self.sightings += (seen := self.do("sight_overdue"))
        self.pass_time(10.0)
        if steal and seen:
            self._claim_by_id(seen[0].id, worker, sites, seen[0])
        else:
            self.do("reap", list(seen))

    @step(4, has_orphans, worker=of.OWNER, sites=of.SOME_SITES, tasks=of.SOME_KINDS, limit=integers(1, 3))
    def adopt(self, worker: str, sites: list[str], tasks: list[str] | None, limit: int) -> None:
        self.remember(self.do("adopt", worker, sites, tasks, limit))

    # -- operate ---------------------------------------------------------------------------------------------------
    @step(4, has_jobs, pick=of.PICK, verb=sampled_from(["cancel", "pause", "interrupt", "finish"]))
    def stop(self, pick: int, verb: str) -> None:
        self.do(verb, _pick(self.ids, pick))

    @step(6, has_leases, pick=of.PICK, verb=sampled_from(["cancel", "pause", "finish", "pause", "interrupt"]))
    def stop_a_started_one(self, pick: int, verb: str) -> None:
        self.do(verb, _pick(self.held(), pick)[0])

    @step(3, has_jobs, pick=of.PICK, verb=sampled_from(["resume", "skip", "release"]))
    def go_on(self, pick: int, verb: str) -> None:
        self.do(verb, _pick(self.ids, pick))

    @step(8, pick=of.PICK, verb=sampled_from(["resume", "resume", "skip", "release", "cancel", "retry"]))
    def go_on_with_what_halts(self, pick: int, verb: str) -> None:
        states = ("pending",) if verb == "release" else ("paused", "failed", "timed_out")
        halted = [job.id for job in self.trio.model.jobs.values() if job.state in states]
        if halted and verb == "retry":
            self._retry(_pick(halted, pick))
        elif halted:
            self.do(verb, _pick(halted, pick))

    @step(4, has_jobs, pick=of.PICK, seconds=sampled_from([-5.0, 0.0, 1.0, 12.0]))
    def snooze(self, pick: int, seconds: float) -> None:
        self.do("snooze", _pick(self.ids, pick), self.trio.clock.now() + timedelta(seconds=seconds))

    @step(3, pick=of.PICK, seconds=sampled_from([-5.0, 1.0, 12.0]))
    def snooze_what_waits(self, pick: int, seconds: float) -> None:
        states = ("pending", "queued", "paused")
        waiting = [job.id for job in self.trio.model.jobs.values() if job.state in states]
        if waiting:
            self.do("snooze", _pick(waiting, pick), self.trio.clock.now() + timedelta(seconds=seconds))

    @step(1, lane=sampled_from(of.LANES))
    def resume_lane(self, lane: str) -> None:
        self.do("resume_lane", lane)

    @step(1, has_jobs, pick=of.PICK, key=sampled_from(of.QUESTIONS))
    def answer(self, pick: int, key: str) -> None:
        self.do("answer", _pick(self.ids, pick), key, '"yes"')

    @step(5, lambda self: self.trio.model.questions, pick=of.PICK)
    def answer_a_question(self, pick: int) -> None:
        job_id, key = _pick(list(self.trio.model.questions), pick)
        self.do("answer", job_id, key, '"yes"')

    @step(1, has_jobs, pick=of.PICK)
    def retry(self, pick: int) -> None:
        self._retry(_pick(self.ids, pick))

    def _retry(self, job_id: str) -> None:
        self.do("retry", job_id, self.new_job({"task": "none", "hold": False}).id)

    @step(1, scope=of.SCOPE, seconds=sampled_from([None, 1.0, 10.0]))
    def pause_scope(self, scope: tuple[str, str], seconds: float | None) -> None:
        self.do("pause_scope", *scope, for_=seconds)

    @step(2, scope=of.SCOPE)
    def resume_scope(self, scope: tuple[str, str]) -> None:
        self.do("resume_scope", *scope)
        self.do("list_pauses")

    # -- inspect, prune --------------------------------------------------------------------------------------------
    @step(1, has_jobs, pick=of.PICK)
    def get(self, pick: int) -> None:
        self.do("get", _pick(self.ids, pick))

    @step(1, lane=sampled_from([None, *of.LANES]), group=sampled_from([None, *of.GROUPS]), worker=of.OWNER)
    def look_around(self, lane: str | None, group: str | None, worker: str) -> None:
        requested = {"lane": lane, "group": group}
        self.do("list_jobs", **{name: value for name, value in requested.items() if value is not None})
        self.do("count")
        self.do("find_leases_of", worker)

    @step(1, age=sampled_from([0.0, 5.0]), limit=integers(1, 3))
    def prune(self, age: float, limit: int) -> None:
        self.do("prune", age, limit)


def _pick(items: Sequence[T], pick: int) -> T:
    return items[-1 - pick % len(items)]


def _outcome(answer: Any) -> str:
    """How a verb ended, in a word or two."""
    match answer:
        case ("refused", state) | ("denied", state, None):
            return f"{answer[0]}, {state}"
        case (("missing" | "duplicate" | "granted") as word, *_):
            return word
        case ("denied", *_):
            return "denied, look again"
        case {"state": state}:
            return f"done, {state}"
        case bool() | None:
            return str(answer)
        case ():
            return "nothing"
        case _:
            return "done"
