from adapters._common import SQLITE, version
from adapters._leasehold import adapter

BACKEND = "sqlite"
VERSION = version("leasehold")
SETTINGS = "synchronous=FULL (our default), concurrency 1000; finished rows kept"
CONCURRENCY = 1000
SLEEPERS = True
UNFINISHED = "SELECT (SELECT count(*) FROM leasehold_ready) + (SELECT count(*) FROM leasehold_lease)"

globals().update(adapter(f"sqlite:///{SQLITE}"))
