"""`manage.py leasehold …`: the command line of Leasehold, with the project's app."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import Any

from django.core.management.base import BaseCommand

APP = "leasehold.contrib.django:app"


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    help = "Run a command of Leasehold with this project's app, such as: worker, jobs, why ID, db upgrade."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own spelling

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "arguments",
            nargs=argparse.REMAINDER,
            metavar="COMMAND …",
            help="As for `leasehold`; MODULE:APP is left out. Without one: the list of commands.",
        )

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        # The settings name the database. A variable left over from elsewhere would override it.
        os.environ.pop("LEASEHOLD_URL", None)
        os.environ["LEASEHOLD_APP"] = APP
        sys.argv = ["leasehold", *arguments]
        runpy.run_module("leasehold", run_name="__main__")
