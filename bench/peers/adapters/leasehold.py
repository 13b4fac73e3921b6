from adapters._common import PG, version
from adapters._leasehold import adapter

BACKEND = "postgres"
VERSION = version("leasehold", "psycopg")
SETTINGS = "defaults but concurrency 1000; finished rows kept, every write fenced by the lease's token"
CONCURRENCY = 1000
SLEEPERS = True
UNFINISHED = "SELECT (SELECT count(*) FROM leasehold.ready) + (SELECT count(*) FROM leasehold.lease)"
HISTORY = """WITH made AS (
    INSERT INTO leasehold.job (id, task, queue, gate, args, created_at)
    SELECT gen_random_uuid(), 'noop', 'default', 1, '{"sent":0.0}', now() FROM generate_series(1, %(n)s)
    RETURNING seq)
  INSERT INTO leasehold.outcome (job, token, finished_at, started_at, attempt, state)
  SELECT seq, 1, now(), now(), 1, 1 FROM made"""

globals().update(adapter(PG or "postgresql://nowhere"))
