"""Where a job's code runs, if not in the worker itself: `from leasehold.runners import DockerRunner`.

A runner of your own keeps the promises of `leasehold.runners.contract.Runner`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from leasehold.runners.docker.runner import DockerRunner

__all__ = ["DockerRunner"]


def __getattr__(name: str) -> object:
    if name == "DockerRunner":  # looked up when it is used: the shim of every command imports this package
        return _import_module("leasehold.runners.docker.runner").DockerRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
