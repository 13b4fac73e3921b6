"""The HTTP API from Python, without the tasks and without the database: `from leasehold.remote import Remote`.
Needs the extra: `pip install 'leasehold[remote]'`.

api = Remote("http://127.0.0.1:8700", token="lh_…")
job = api.enqueue("add", {"a": 1, "b": 2})
job.result(30)
"""

try:
    import httpx2 as _httpx2
except ModuleNotFoundError as _error:  # pragma: no cover
    if _error.name != "httpx2":
        raise
    from leasehold.errors import DriverMissing as _DriverMissing

    raise _DriverMissing("httpx2", "remote") from None
else:
    del _httpx2

from leasehold.remote.client import Remote, Tenant
from leasehold.remote.exchange import CallOptions, JobCall

__all__ = ["CallOptions", "JobCall", "Remote", "Tenant"]
