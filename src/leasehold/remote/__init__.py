"""The HTTP API from Python, without the tasks and without the database: `from leasehold.remote import Remote`.
Needs the extra: `pip install 'leasehold[remote]'`.

api = Remote("http://127.0.0.1:8700", token="lh_…")
job = api.enqueue("add", {"a": 1, "b": 2})
job.result(30)
"""

from leasehold.domain.errors import need_extra as _need_extra

_need_extra("remote", "httpx2")

from leasehold.remote.client import Remote, Tenant  # noqa: E402 - needs the extra
from leasehold.remote.exchange import CallOptions, JobCall  # noqa: E402 - needs the extra

__all__ = ["CallOptions", "JobCall", "Remote", "Tenant"]
