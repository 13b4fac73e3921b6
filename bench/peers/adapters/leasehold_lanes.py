"""Ours with every job in one of 10,000 lanes: of each lane one job runs at a time, in order."""
from adapters._common import PG, version
from adapters._leasehold import adapter

BACKEND = "postgres"
VERSION = version("leasehold", "psycopg")
SETTINGS = "as leasehold, every job in one of 10,000 lanes"
CONCURRENCY = 1000
UNFINISHED = "SELECT (SELECT count(*) FROM leasehold.lane_place) + (SELECT count(*) FROM leasehold.lease)"

globals().update(adapter(PG or "postgresql://nowhere", lanes=10_000))
