"""The app configuration that `"leasehold.contrib.django"` in INSTALLED_APPS loads."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from leasehold.contrib.django.project import PACKAGE, the_project


class LeaseholdConfig(AppConfig):  # type: ignore[misc] # Django has no types
    name = PACKAGE
    label = "leasehold"
    verbose_name = "Leasehold"

    def ready(self) -> None:
        # The app is made here, not at its first use, so that Django reports a wrong setting when it starts.
        autodiscover_modules(*the_project().configuration.tasks)
