"""Bad input: one clear error or one lost job, the same on both stores, and nothing else is harmed."""

from __future__ import annotations

from contextlib import closing

import pytest

from leasehold.domain.checks.ids import checked_id
from leasehold.domain.errors import DatabaseUnreachable, InvalidInput, JobNotFound
from leasehold.domain.outcome import (
    ERROR_LIMIT,
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Failure,
    HandedBack,
    Outcome,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.stores.open import open_store
from leasehold.stores.results import Ending
from tests.backends import new_id, new_job, put
from tests.contract.lives import OWNER, end, in_state, is_fenced, run

# -- results that no store can keep ------------------------------------------------------------------------------------

NOT_SERIALIZABLE = {
    "no JSON": "not json",
    "empty": "",
    "half a JSON": '{"a": ',
    "two values": "1 2",
    "NaN": "NaN",
    "infinity": "[Infinity]",
    "a NUL in a string": '"a\x00b"',
    "a NUL behind the value": "1\x00",
    "a NUL behind a whole object": '{"a": 1}\x00"junk"',
    "a lone surrogate": '"\ud800"',
    "nested too deep": "[" * 200_000 + "]" * 200_000,
}


@pytest.mark.parametrize("name", NOT_SERIALIZABLE)
def test_a_batch_of_ten_with_one_not_serializable_result_loses_only_that_one(store, name):
    _settle_ten(store, {3: NOT_SERIALIZABLE[name]})


@pytest.mark.parametrize("places", [(0, 1, 2), (0, 4, 9), (7, 8, 9)])
def test_a_batch_of_ten_with_three_not_serializable_results_loses_only_those(store, places):
    texts = ["not json", '"a\x00b"', '{"a": ']
    _settle_ten(store, dict(zip(places, texts, strict=True)))


def test_a_batch_in_which_no_result_can_be_stored_ends_failed_as_a_whole(store):
    _settle_ten(store, dict.fromkeys(range(10), "not json"))


def _settle_ten(store, bad: dict[int, str]) -> None:
    store.enqueue([new_job(lane=f"lane-{number}", group="g") for number in range(10)])
    grants = sorted(store.claim(OWNER, ["default"], 10))
    results = [bad.get(number, f'{{"n": {number}}}') for number in range(10)]
    settled = store.settle(
        [Ending(grant.id, grant.token, Success(text)) for grant, text in zip(grants, results, strict=True)]
    )
    lost = sorted(grants[number].id for number in bad)
    assert settled.accepted == sorted(grant.id for grant in grants)
    assert (sorted(settled.not_serializable), settled.fenced) == (lost, [])
    for number, grant in enumerate(grants):
        job = store.get(grant.id)
        assert (job.worker, job.settled_by, job.settled_token) == (None, OWNER, grant.token)
        if number in bad:
            assert (job.state, job.result, job.halts_lane) == (State.FAILED, None, True)
            assert job.error.startswith("the result is not serializable")
            assert job.failures == 1
        else:
            assert (job.state, job.result) == (State.SUCCEEDED, f'{{"n": {number}}}')


def test_a_not_serializable_result_under_a_lost_lease_is_fenced_and_nothing_else(store):
    for text in ("not json", '"a\x00b"'):
        grant = run(store)
        end(store, grant, HandedBack())
        before = store.get(grant.id)
        settled = store.settle([Ending(grant.id, grant.token, Success(text))])
        assert (settled.accepted, settled.fenced) == ([], [grant.id])
        assert settled.not_serializable == [], "it was not accepted, not even as failed"
        assert store.get(grant.id) == before


def test_a_not_serializable_result_of_a_cancelled_job_ends_cancelled(store):
    grant = run(store)
    store.cancel(grant.id)
    settled = store.settle([Ending(grant.id, grant.token, Success("not json"))])
    assert settled.not_serializable == [grant.id]
    assert store.get(grant.id).state is State.CANCELLED


def test_an_escaped_nul_in_a_result_comes_back_as_it_was(store):
    """Escaped it is plain JSON to both databases. Whether users may write it is the client's decision."""
    grant = run(store)
    assert end(store, grant, Success('"a\\u0000b"')).result == '"a\\u0000b"'


def test_a_result_comes_back_letter_by_letter(store):
    text = '{"b":  1.50, "a": "ü \U0001f600 \\ud83d\\ude00", "a": [1e400, 12345678901234567890]}'
    assert end(store, run(store), Success(text)).result == text


@pytest.mark.parametrize("reference", ["s3://bucket/key", "ünïcode"])
def test_a_reference_to_a_result_comes_back_as_it_was(store, reference):
    assert end(store, run(store), Success(None, reference)).result_ref == reference


def test_a_not_serializable_reference_costs_only_its_own_job(store):
    grants = [run(store) for _ in range(4)]
    references = ["a", "b\x00", "c", "d"]
    endings = [
        Ending(grant.id, grant.token, Success("1", reference))
        for grant, reference in zip(grants, references, strict=True)
    ]
    store.settle(endings)
    states = [store.get(grant.id).state.value for grant in grants]
    assert states == ["succeeded", "failed", "succeeded", "succeeded"]


BAD_QUESTIONS = {
    "a NUL in the text": QuestionAsked("q", "a\x00b"),
    "a NUL in the key": QuestionAsked("q\x00", "May I?"),
    "a schema that is no JSON": QuestionAsked("q", "May I?", "not json"),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_a_batch_with_a_not_serializable_question_settles_the_others(store, name):
    """A batch that the database refuses for its data is bisected, whatever the outcomes in it."""
    grants = [run(store) for _ in range(3)]
    outcomes: list[Outcome] = [Failure("boom", final=True), BAD_QUESTIONS[name], Snoozed(5.0)]
    settled = store.settle(
        [Ending(grant.id, grant.token, outcome) for grant, outcome in zip(grants, outcomes, strict=True)]
    )
    assert len(settled.accepted) == 3
    assert store.get(grants[0].id).state is State.FAILED
    assert store.get(grants[2].id).state is State.QUEUED
    job = store.get(grants[1].id)
    assert (job.state in (State.FAILED, State.WAITING), job.worker) == (True, None)


# -- error texts -------------------------------------------------------------------------------------------------------

TELL: dict[str, Outcome] = {
    "failure": Failure("a\x00b\ud800c", final=True),
    "retry": Failure("a\x00b\ud800c"),
    "time-out": AttemptTimedOut("a\x00b\ud800c"),
    "deadline": DeadlinePassed("a\x00b\ud800c"),
    "crash": Crashed("a\x00b\ud800c"),
    "snooze": Snoozed(1.0, "a\x00b\ud800c"),
    "breach": Breached("a\x00b\ud800c"),
}


@pytest.mark.parametrize("name", TELL)
def test_an_error_text_is_cleaned_before_it_is_stored(store, name):
    job = end(store, run(store), TELL[name])
    assert job.error == "a\ufffdb?c"
    (entry,) = store.history(job.id)
    assert entry.detail == job.error


@pytest.mark.parametrize("outcome", [Stopped("a\x00b\ud800c"), HandedBack("a\x00b\ud800c")])
def test_the_reason_of_an_ending_is_cleaned_before_it_is_stored(store, outcome):
    job = end(store, run(store), outcome)
    assert job.reason == "a\ufffdb?c"
    assert store.history(job.id)[-1].detail == job.reason


@pytest.mark.parametrize("verb", ["cancel", "pause", "finish", "skip"])
def test_the_reason_of_an_operator_is_cleaned_before_it_is_stored(store, clock, verb):
    state = State.FAILED if verb == "skip" else State.RUNNING
    job = in_state(store, clock, state)
    getattr(store, verb)(job.id, "anna", "a\x00b\ud800c")
    entry = store.history(job.id)[-1]
    assert entry.detail == "a\ufffdb?c"
    if verb != "skip":
        assert store.get(job.id).reason == "a\ufffdb?c"


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600"])
def test_an_error_text_is_cut_at_16_kib(store, letter):
    job = end(store, run(store), Failure(letter * 100_000, final=True))
    size = len(job.error.encode())
    assert ERROR_LIMIT - 64 < size <= ERROR_LIMIT == 16 * 1024
    assert job.error.endswith("(cut)")
    (entry,) = store.history(job.id)
    assert len(entry.detail.encode()) <= ERROR_LIMIT, "nor does the history keep more"


def test_an_error_text_of_16_kib_is_not_cut(store):
    text = "x" * ERROR_LIMIT
    assert end(store, run(store), Failure(text, final=True)).error == text


def test_a_batch_with_one_bad_error_text_settles_the_others(store):
    grants = [run(store) for _ in range(3)]
    store.settle([Ending(grant.id, grant.token, Failure("\x00", final=True)) for grant in grants])
    assert store.count()[State.FAILED] == 3


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "x", "123", "01a1e106-35b4-7fe2-861e", "'; DROP TABLE job; --", None, 7]
)
def test_a_malformed_id_is_refused_before_it_reaches_a_store(text):
    with pytest.raises(InvalidInput) as refusal:
        checked_id(text, "job_id")
    assert refusal.value.field == "job_id"


def test_an_id_has_one_spelling():
    given = new_id()
    assert checked_id(given.upper()) == checked_id("{" + given + "}") == checked_id(given) == given


@pytest.mark.parametrize("verb", ["get", "cancel", "pause", "finish", "resume", "skip", "release"])
def test_an_id_that_names_no_job_is_not_found(store, verb):
    missing = new_id()
    with pytest.raises(JobNotFound) as refusal:
        getattr(store, verb)(missing)
    assert refusal.value.job_id == missing


def test_an_id_that_names_no_job_is_not_found_by_the_other_verbs_either(store):
    missing = new_id()
    with pytest.raises(JobNotFound):
        store.answer(missing, "q", "1")
    with pytest.raises(JobNotFound):
        store.retry(missing, new_id())
    assert store.history(missing) == []
    assert store.questions(missing) == []
    assert store.renew({missing: 1}) == []
    assert not store.record_site(missing, 1, "s", "n")
    assert is_fenced(store, run(store)._replace(id=missing), Success())


@pytest.mark.parametrize("before", ["x", "'; DROP TABLE job; --"])
def test_a_malformed_cursor_is_refused_by_name(store, before):
    with pytest.raises(InvalidInput) as refusal:
        store.list_jobs(cursor=before)
    assert refusal.value.field == "cursor"


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_a_page_that_is_too_long_or_too_short_is_refused_by_name(store, limit):
    with pytest.raises(InvalidInput) as refusal:
        store.list_jobs(limit=limit)
    assert refusal.value.field == "limit"


def test_a_negative_age_is_refused_by_name(store):
    with pytest.raises(InvalidInput) as refusal:
        store.prune(-1.0)
    assert refusal.value.field == "age"


def test_hostile_names_are_names_and_nothing_else(store):
    hostile = "'; DROP TABLE job; -- \" %s %(x)s :now $1 \\ ü"
    job = put(
        store,
        task=hostile,
        queue=hostile,
        lane=hostile,
        group=hostile,
        tags=(hostile,),
        unique_key=hostile,
        trace=hostile,
    )
    assert (job.task, job.queue, job.lane, job.group) == (hostile,) * 4
    assert (job.tags, job.unique_key, job.trace) == ((hostile,), hostile, hostile)
    for found in (
        Filter(task=hostile),
        Filter(queue=hostile),
        Filter(lane=hostile),
        Filter(group=hostile),
        Filter(tag=hostile),
    ):
        assert [one.id for one in store.list_jobs(found).jobs] == [job.id]
    store.pause_scope("task", hostile, hostile, hostile)
    assert store.claim(hostile, [hostile], 1) == []
    assert store.resume_scope("task", hostile)
    (grant,) = store.claim(hostile, [hostile], 1, tasks=[hostile])
    assert [held.id for held in store.find_leases_of(hostile)] == [job.id]
    assert end(store, grant, Failure(hostile, final=True)).error == hostile


def test_arguments_that_are_not_json_are_refused_and_nothing_is_stored(store):
    for args in ("not json", '{"a": "\x00"}', ""):
        job = new_job(args=args)
        with pytest.raises(Exception, match=r"(?i)json|escape|NUL"):
            store.enqueue([new_job(), job])
    assert sum(store.count().values()) == 0


def test_a_priority_out_of_range_is_refused_and_nothing_is_stored(store):
    for priority in (-101, 101):
        with pytest.raises(Exception, match="job_priority_in_range"):
            store.enqueue([new_job(), new_job(priority=priority)])
    assert sum(store.count().values()) == 0


def test_an_odd_policy_travels_with_its_job(store):
    policy = Policy(7, 2, 0.5, 1e6, "adopt", True, "skip", "allow")
    assert put(store, policy=policy).policy == policy


# -- opening -----------------------------------------------------------------------------------------------------------

HOSTILE_SCHEMAS = [
    "",
    "a" * 49,
    'a"b',
    "a'b",
    "a;b",
    "a; DROP SCHEMA public CASCADE; --",
    "a b",
    "a.b",
    "a-b",
    "a\n",
    "a\x00",
    "Upper",
    "UPPER",
    "1a",
    "_a",
    "ü",
    "pg_a",
    "pg_catalog",
    "information_schema",
    "a%s",
]


@pytest.mark.parametrize("schema", HOSTILE_SCHEMAS)
def test_a_hostile_schema_name_is_refused_by_name(schema):
    with pytest.raises(InvalidInput) as refusal:
        open_store("postgresql://localhost:1/x", schema=schema)
    assert refusal.value.field == "schema"
    assert "at most 48" in refusal.value.remedy


def test_a_hostile_schema_name_is_refused_by_the_store_that_has_no_schemas_too(tmp_path):
    """A name that works on one store and not on the other would be found out in production."""
    for schema in HOSTILE_SCHEMAS:
        with pytest.raises(InvalidInput) as refusal:
            open_store(f"sqlite:///{tmp_path}/jobs.db", schema=schema)
        assert refusal.value.field == "schema"
    assert list(tmp_path.iterdir()) == []


def test_a_schema_name_of_48_letters_is_long_enough(postgres_url, backend):
    name = "a" * 48
    store = open_store(backend.url, schema=name)
    try:
        store.upgrade()
        store.check_schema()
    finally:
        store.close()
        if backend.name == "postgres":
            backend.query(f"SET client_min_messages = error; DROP SCHEMA {name} CASCADE")


SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://anna:{SECRET}@127.0.0.1:1/jobs",
        f"postgresql://anna:{SECRET}@/jobs?host=/nowhere/at/all",
        f"postgresql://127.0.0.1:1/jobs?user=anna&password={SECRET}",
    ],
)
def test_an_unreachable_database_is_told_without_its_password(url):
    with pytest.raises(DatabaseUnreachable) as refusal:
        open_store(url)
    text = f"{refusal.value} {refusal.value.store} {refusal.value.cause}"
    assert SECRET not in text
    assert "jobs" in str(refusal.value)
    assert "check that it runs" in str(refusal.value)


def test_a_folder_in_place_of_the_file_is_an_unreachable_database(tmp_path):
    with pytest.raises(DatabaseUnreachable) as refusal:
        open_store(f"sqlite:///{tmp_path}")
    assert str(tmp_path) in str(refusal.value)


def test_a_file_that_is_no_database_is_an_unreachable_database(tmp_path):
    (tmp_path / "jobs.db").write_bytes(b"this is no database, but a long enough text" * 100)
    with pytest.raises(DatabaseUnreachable):
        open_store(f"sqlite:///{tmp_path}/jobs.db")


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "/tmp/jobs.db", "mysql://localhost/jobs", "sqlite", "sqlite://", "sqlite:///",
            "sqlite:///:memory:", "postgresql+asyncpg://localhost/jobs", "://", "sqlite:jobs.db"],
)  # fmt: skip
def test_a_url_that_names_no_store_is_refused_by_name(url):
    with pytest.raises(InvalidInput) as refusal:
        open_store(url)
    assert refusal.value.field == "url"
    assert "sqlite:///" in refusal.value.remedy


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://anna:{SECRET}@localhost/jobs",
        f"postgresql+asyncpg://anna:{SECRET}@localhost/jobs",
        f"postgresql+psycopg://anna:{SECRET}@localhost:port/jobs",
        f"postgresql://anna:hun/{SECRET}@localhost/jobs",
        f"postgresql://anna:12/{SECRET}@localhost/jobs",
        f"postgresql://anna:12?hun@{SECRET}@localhost/jobs",
        f"postgresql://anna:12?{SECRET}@localhost/jobs?pooler=transaction",
        f"postgresql://anna:hun@{SECRET}@localhost/jobs",
        f"postgresql://anna:{SECRET}/hun@localhost/jobs",
        f"postgresql://anna:{SECRET}@[::1/jobs",
        f"postgresql://anna:{SECRET}@[::1/jobs?pooler=transaction",
        f"host=localhost password={SECRET}",
        f"postgresql://anna:{SECRET}%zz@localhost/jobs",
        f"postgresql://anna:{SECRET}@localhost:port/jobs",
        f"postgresql://anna:{SECRET}@localhost/jobs?nonsense=1",
    ],
)
def test_a_refused_url_is_told_without_its_password(url):
    with pytest.raises(InvalidInput) as refusal:
        open_store(url)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_usual_spelling_of_postgresql_is_taken(scheme, postgres_url):
    rest = postgres_url.partition("://")[2]
    with closing(open_store(f"{scheme}://{rest}")) as store:
        assert store.label.startswith("postgresql://")
        assert store.now()
