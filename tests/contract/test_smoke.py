from tests.backends import put

def test_a_job_is_claimed_once(store, clock, backend):
    job = put(store)
    assert [g.id for g in store.claim("w", ["default"], 5)] == [job.id]
    assert backend.open(clock).claim("w", ["default"], 5) == []
