"""Commands, curl requests and Python calls for a job, to copy from its page. Pure."""

from __future__ import annotations

import json
import shlex

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job

LONGEST = 20_000
"""Characters of arguments that the copies contain."""


@frozen
class Copies:
    cli: str
    curl: str
    python: str


def copies_of(job: Job, tenant: str | None, server: str) -> Copies:
    """Texts that show this job, and that enqueue another with the same arguments. Hidden arguments stay hidden."""
    args = job.args if len(job.args) <= LONGEST else '{"…": "too long to be shown"}'
    of_tenant = "" if tenant is None else f" --tenant {shlex.quote(tenant)}"
    header = "" if tenant is None else f" -H {shlex.quote(f'Leasehold-Tenant: {tenant}')}"
    token = ' -H "Authorization: Bearer $LEASEHOLD_TOKEN"'
    body = json.dumps({"task": job.task, "args": json.loads(args)}, ensure_ascii=False)
    view = "app" if tenant is None else f"app.tenant({tenant!r})"
    return Copies(
        cli="\n".join(
            (
                f"leasehold jobs show {job.id}{of_tenant}",
                f"leasehold why {job.id}{of_tenant}",
                f"leasehold jobs enqueue MODULE:APP {shlex.quote(job.task)} {shlex.quote(args)}{of_tenant}",
            )
        ),
        curl="\n".join(
            (
                f"curl{token}{header} {server}/v1/jobs/{job.id}",
                f"curl{token}{header} -H 'Content-Type: application/json' \\",
                f"  -d {shlex.quote(body)} {server}/v1/jobs",
            )
        ),
        python="\n".join(
            (
                f"job = {view}.get({job.id!r})",
                "print(job.state, job.explain())",
                f"again = {view}.enqueue({job.task!r}, {json.loads(args)!r})",
            )
        ),
    )
