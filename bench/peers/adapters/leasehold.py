from adapters._common import PG, version
from adapters._leasehold import adapter

BACKEND = "postgres"
VERSION = version("leasehold", "psycopg")
SETTINGS = "defaults but concurrency 1000; finished rows kept, every write fenced by the lease's token"
CONCURRENCY = 1000
SLEEPERS = True
UNFINISHED = "SELECT count(*) FROM leasehold.job WHERE state IN ('queued', 'running')"
HISTORY = """INSERT INTO leasehold.job (id, kind, queue, gate, state, args, created_at, available_at, attempt, lease_token,
    first_started_at, started_at, finished_at, settled_by, settled_token)
  SELECT gen_random_uuid(), 'noop', 'default', 1, 'succeeded', '{"sent":0.0}', now(), now(), 1, 2, now(), now(), now(), 'w', 1
  FROM generate_series(1, %(n)s)"""

globals().update(adapter(PG or "postgresql://nowhere"))
