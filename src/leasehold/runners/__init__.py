"""Runners of external executions: `from leasehold.runners import DockerRunner`.

Your own runner must keep the promises of `leasehold.runners.contract.Runner`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from leasehold.runners.docker.runner import DockerRunner

__all__ = ["DockerRunner"]


def __getattr__(name: str) -> object:
    if name == "DockerRunner":  # imported when used: the shim of every command imports this package
        return _import_module("leasehold.runners.docker.runner").DockerRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
