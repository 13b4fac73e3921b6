"""Results as files: whole or not there, never another run's, gone with their job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from leasehold.domain.errors import InvalidInput, LeaseLost, ResultMissing, ResultsUnwritable
from leasehold.domain.outcome import HandedBack, Success
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from tests.backends import Backend, new_id, put
from tests.contract.lives import claim_one, end, run

DAY = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(backend: Backend, clock, folder: Path) -> JobStore:
    return backend.open(clock, str(folder))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def path_of(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(name)
    return found


def age(folder: Path, days: float) -> None:
    long_ago = time.time() - days * DAY
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))


def test_a_result_of_five_megabytes_comes_back(store, folder):
    grant = run(store)
    text = json.dumps({"text": "ä" * 2_600_000}, ensure_ascii=False)
    assert len(text.encode()) > 5_000_000
    name = store.file_result(grant.id, grant.token, text)
    assert name == f"{grant.id}.{grant.token}.json"
    job = end(store, grant, Success(None, name))
    assert (job.result, job.result_ref) == (None, name)
    assert store.read_result(job.id, name) == text
    assert files(folder) == [name]


def test_who_has_lost_the_lease_cannot_overwrite_the_winners_result(store, folder):
    late = run(store)
    end(store, late, HandedBack())
    winner = claim_one(store, "worker-2")
    kept = store.file_result(winner.id, winner.token, '"right"')
    end(store, winner, Success(None, kept))
    lost = store.file_result(late.id, late.token, '"wrong"')
    assert lost != kept
    settled = store.settle([Ending(late.id, late.token, Success(None, lost))])
    assert settled.fenced == [late.id]
    assert store.get(winner.id).result_ref == kept
    assert store.read_result(winner.id, kept) == '"right"'


def test_a_second_result_of_one_run_does_not_replace_the_first(store):
    """The first may have been settled, and only the answer was lost."""
    grant = run(store)
    first = store.file_result(grant.id, grant.token, "1")
    second = store.file_result(grant.id, grant.token, "2")
    assert first != second
    assert (store.read_result(grant.id, first), store.read_result(grant.id, second)) == ("1", "2")


def test_the_file_goes_with_its_job(store, clock, folder):
    grant = run(store)
    end(store, grant, Success(None, store.file_result(grant.id, grant.token, "1")))
    put(store, hold=True)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1
    assert files(folder) == []


def test_only_files_that_nobody_needs_any_more_are_swept(store, folder):
    done = run(store)
    kept = store.file_result(done.id, done.token, "1")
    second = store.file_result(done.id, done.token, "2")
    end(store, done, Success(None, kept))
    running = run(store)
    unsettled = store.file_result(running.id, running.token, "3")
    crashed = run(store)
    crashed_file = store.file_result(crashed.id, crashed.token, "4")
    end(store, crashed, HandedBack())
    gone = store.file_result(new_id(), 1, "5")
    path_of(folder, kept).with_name(f".{done.id}.0123456789abcdef.tmp").write_text("half")
    path_of(folder, kept).with_name("notes.txt").write_text("somebody's own")
    assert store.sweep_results() == 0, "they are young"
    age(folder, 2)
    assert store.sweep_results() == 3
    assert files(folder) == sorted([kept, unsettled, "notes.txt"])
    assert {second, crashed_file, gone}.isdisjoint(files(folder))


def test_two_stores_may_share_a_folder(store, folder, tmp_path):
    """What another store has filed belongs to no job of ours, and is no stray."""
    other = Backend("sqlite", f"sqlite:///{tmp_path}/other.db")
    other.open().upgrade()
    theirs = other.open(results=str(folder))
    grant = run(theirs)
    end(theirs, grant, Success(None, theirs.file_result(grant.id, grant.token, "1")))
    age(folder, 2)
    assert store.sweep_results() == 0
    assert files(folder) == [f"{grant.id}.1.json"]
    other.close_opened()


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "{id}.1.json/../x.json",
        "/etc/passwd",
        "{other}.1.json",
        "{id}.0.json",
        "{id}.json",
        "",
    ],
)
def test_a_name_that_is_not_ours_is_not_read(store, name):
    grant = run(store)
    with pytest.raises(ResultMissing, match="not the name"):
        store.read_result(grant.id, name.format(id=grant.id, other=new_id()))


def test_a_link_out_of_the_folder_is_not_followed(store, folder, tmp_path):
    grant = run(store)
    name = store.file_result(grant.id, grant.token, "1")
    path = path_of(folder, name)
    path.unlink()
    (tmp_path / "secret.json").write_text('"secret"')
    path.symlink_to(tmp_path / "secret.json")
    with pytest.raises(ResultMissing, match="leads out"):
        store.read_result(grant.id, name)


@pytest.mark.parametrize(("damage", "reported"), [("remove", "not there"), ("cut", "damaged")])
def test_a_result_that_is_gone_or_damaged_is_told_with_its_path(store, folder, damage, reported):
    grant = run(store)
    name = store.file_result(grant.id, grant.token, '{"a": 1}')
    path = path_of(folder, name)
    if damage == "remove":
        path.unlink()
    else:
        path.write_text('{"a')
    with pytest.raises(ResultMissing, match=reported) as raised:
        store.read_result(grant.id, name)
    assert (raised.value.job_id, raised.value.path) == (grant.id, str(path))


def test_a_folder_that_cannot_be_made_is_refused(backend, clock, tmp_path):
    (tmp_path / "file").write_text("")
    store = backend.open(clock, str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match="cannot be made") as raised:
        store.check_results(needed=False)
    assert raised.value.field == "results"


def test_without_a_folder_a_file_is_beside_the_database_or_refused(backend, clock, tmp_path):
    store = backend.open(clock)
    store.check_results(needed=False)
    assert not (tmp_path / "jobs.db.results").exists(), "nobody needs it yet"
    grant = run(store)
    if backend.name == "sqlite":
        store.check_results(needed=True)
        name = store.file_result(grant.id, grant.token, "1", as_file=True)
        assert files(tmp_path / "jobs.db.results") == [name]
        return
    for call in (
        lambda: store.check_results(needed=True),
        lambda: store.file_result(grant.id, grant.token, "1", as_file=True),
        lambda: store.file_result(grant.id, grant.token, HUGE),
    ):
        with pytest.raises(InvalidInput, match="LEASEHOLD_RESULTS"):
            call()
    with pytest.raises(ResultMissing, match="LEASEHOLD_RESULTS"):
        store.read_result(grant.id, f"{grant.id}.1.json")
    assert store.sweep_results() == 0


def test_a_folder_that_does_not_take_a_result_is_told_from_the_database(store, folder):
    grant = run(store)
    folder.write_text("not a folder")
    with pytest.raises(ResultsUnwritable, match="cannot write to the results folder") as raised:
        store.file_result(grant.id, grant.token, "1")
    assert raised.value.folder == str(folder)
    folder.unlink()
    assert store.read_result(grant.id, store.file_result(grant.id, grant.token, "1")) == "1"


# -- in the database, in pieces


HUGE = '"' + "x" * 16 * 1024 * 1024 + '"'


@pytest.fixture
def bare(backend: Backend, clock) -> JobStore:
    """A store without a folder."""
    return backend.open(clock)


def pieces(backend: Backend) -> list[tuple[int, int, int]]:
    """Token, number and bytes of each."""
    length = "length(CAST(text AS BLOB))" if backend.name == "sqlite" else "octet_length(text)"
    return backend.query(f"SELECT token, number, {length} FROM leasehold.result_piece ORDER BY 1, 2, piece")


def test_without_a_folder_a_large_result_is_kept_in_pieces_of_a_megabyte_at_most(bare, backend):
    grant = run(bare)
    text = json.dumps({"text": "ä€😀" * 500_000}, ensure_ascii=False)
    name = bare.file_result(grant.id, grant.token, text)
    job = end(bare, grant, Success(None, name))
    assert (job.result, job.result_ref) == (None, name)
    assert backend.open().read_result(job.id, name) == text
    sizes = [size for _, _, size in pieces(backend)]
    assert sum(sizes) == len(text.encode())
    assert max(sizes) <= 1024 * 1024


def test_with_a_folder_nothing_is_kept_in_pieces_unless_that_is_asked_for(store, backend, folder):
    grant = run(store)
    store.file_result(grant.id, grant.token, HUGE)
    assert len(files(folder)) == 1
    assert pieces(backend) == []
    assert store.read_result(grant.id, store.keep_result(grant.id, grant.token, '"a"')) == '"a"'


def test_who_has_lost_the_lease_keeps_no_pieces(bare, backend):
    late = run(bare)
    end(bare, late, HandedBack())
    winner = claim_one(bare, "worker-2")
    with pytest.raises(LeaseLost):
        bare.file_result(late.id, late.token, '"wrong"')
    assert pieces(backend) == []
    kept = bare.file_result(winner.id, winner.token, '"right"')
    end(bare, winner, Success(None, kept))
    assert bare.read_result(winner.id, kept) == '"right"'
    with pytest.raises(LeaseLost):
        bare.file_result(winner.id, winner.token, '"late"')


def test_a_second_result_in_pieces_does_not_replace_the_first(bare):
    grant = run(bare)
    first = bare.file_result(grant.id, grant.token, "1")
    second = bare.file_result(grant.id, grant.token, "2")
    assert first != second
    assert (bare.read_result(grant.id, first), bare.read_result(grant.id, second)) == ("1", "2")


def test_pieces_go_with_their_job(bare, backend, clock):
    grant = run(bare)
    end(bare, grant, Success(None, bare.file_result(grant.id, grant.token, "1")))
    clock.advance(2 * DAY)
    assert bare.prune(DAY).deleted == 1
    assert pieces(backend) == []


def test_only_pieces_that_no_job_needs_any_more_are_swept(bare, backend):
    done = run(bare)
    kept = bare.file_result(done.id, done.token, "1")
    bare.file_result(done.id, done.token, "22")
    end(bare, done, Success(None, kept))
    running = run(bare)
    unsettled = bare.file_result(running.id, running.token, "333")
    crashed = run(bare)
    bare.file_result(crashed.id, crashed.token, "4444")
    end(bare, crashed, HandedBack())
    assert bare.sweep_results(part=7) == 0, "pieces are swept with part 0"
    assert bare.sweep_results(part=0) == 2
    assert sorted(size for _, _, size in pieces(backend)) == [1, 3]
    assert (bare.read_result(done.id, kept), bare.read_result(running.id, unsettled)) == ("1", "333")


@pytest.mark.parametrize(
    "name", ["database:1.2", "database:2.1", "database:0.1", "database:1.1.1", "database:x"]
)
def test_a_name_under_which_nothing_was_kept_is_missing(bare, name):
    grant = run(bare)
    bare.file_result(grant.id, grant.token, "1")
    other = run(bare)
    with pytest.raises(ResultMissing):
        bare.read_result(grant.id, name)
    with pytest.raises(ResultMissing):
        bare.read_result(other.id, "database:1.1")
