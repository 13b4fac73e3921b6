"""`LEASEHOLD` in Django's settings: the URL is that of the database, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import django
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import ConnectionHandler
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

from leasehold.contrib.django import project as ours

POSTGRES = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"


@pytest.fixture(autouse=True)
def _django(monkeypatch: pytest.MonkeyPatch) -> None:
    if not settings.configured:
        settings.configure(DATABASES={"default": {}})
        django.setup()
    monkeypatch.setattr(
        ours, "connections", ConnectionHandler({"default": {"ENGINE": SQLITE, "NAME": "db.sqlite3"}})
    )


def url_of(monkeypatch: pytest.MonkeyPatch, **place: Any) -> str:
    monkeypatch.setattr(ours, "connections", ConnectionHandler({"default": place}))
    return ours.configuration().app["url"]


@pytest.mark.parametrize(
    ("place", "means"),
    [
        ({"NAME": "shop"}, {"dbname": "shop"}),
        ({"NAME": "shop", "USER": "me", "HOST": "db.example", "PORT": 5433},
         {"dbname": "shop", "user": "me", "host": "db.example", "port": "5433"}),
        ({"NAME": "my shop/1", "USER": "a@b", "PASSWORD": "p@s:s/w?r d%20+#&", "HOST": "localhost"},
         {"dbname": "my shop/1", "user": "a@b", "password": "p@s:s/w?r d%20+#&", "host": "localhost"}),
        ({"NAME": "shop", "HOST": "/run/my socket", "PORT": "6000", "USER": "me"},
         {"dbname": "shop", "host": "/run/my socket", "port": "6000", "user": "me"}),
        ({"NAME": "shop", "HOST": "::1", "PORT": "5432"}, {"dbname": "shop", "host": "::1", "port": "5432"}),
        ({"NAME": "shop", "HOST": "one,two", "PORT": "1,2"}, {"dbname": "shop", "host": "one,two", "port": "1,2"}),
        ({"NAME": "", "OPTIONS": {"service": "shop"}}, {"service": "shop"}),
        ({"NAME": "shop", "OPTIONS": {"sslmode": "require", "options": "-c search_path=a,b", "connect_timeout": 3}},
         {"dbname": "shop", "sslmode": "require", "options": "-c search_path=a,b", "connect_timeout": "3"}),
        ({"NAME": "shop", "OPTIONS": {"pool": True, "isolation_level": 3, "prepare_threshold": None}},
         {"dbname": "shop"}),
    ],
)  # fmt: skip
def test_a_postgres_url_means_what_django_means(monkeypatch, place, means):
    assert conninfo_to_dict(url_of(monkeypatch, ENGINE=POSTGRES, **place)) == means


def test_a_sqlite_file_is_named_wherever_the_process_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert url_of(monkeypatch, ENGINE=SQLITE, NAME=tmp_path / "a b.db") == f"sqlite:///{tmp_path}/a b.db"
    assert url_of(monkeypatch, ENGINE=SQLITE, NAME="db.sqlite3") == f"sqlite:///{tmp_path}/db.sqlite3"


def test_the_settings_of_the_app_are_handed_on():
    given = {"SCHEMA": "jobs", "POOLER": True, "SHUTDOWN_GRACE": None, "TASKS": ["tasks", "jobs"]}
    with override_settings(LEASEHOLD=given):
        found = ours.configuration()
    assert found.app.pop("url").endswith("/db.sqlite3")
    assert found.app == {"schema": "jobs", "pooler": True, "shutdown_grace": None}
    assert (found.alias, found.tasks) == ("default", ("tasks", "jobs"))


def test_a_url_of_its_own_takes_the_place_of_the_alias():
    with override_settings(LEASEHOLD={"URL": "sqlite:///jobs.db"}):
        assert ours.configuration().app == {"url": "sqlite:///jobs.db"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("postgresql://", "LEASEHOLD is a str"),
        ({"DATABSE": "default"}, r"LEASEHOLD\['DATABSE'\].*did you mean 'DATABASE'"),
        ({"schema": "jobs"}, r"LEASEHOLD\['schema'\].*did you mean 'SCHEMA'"),
        ({"QUEUES": []}, r"LEASEHOLD\['QUEUES'\].*known: DATABASE, TASKS"),
        ({"URL": "sqlite:///a.db", "DATABASE": "default"}, "LEASEHOLD has 'URL' and 'DATABASE'"),
        ({"DATABASE": "jobs"}, r"LEASEHOLD\['DATABASE'\] names 'jobs', which is not in DATABASES"),
        ({"TASKS": "tasks"}, r"LEASEHOLD\['TASKS'\]"),
    ],
)
def test_a_wrong_setting_is_named(given, words):
    with override_settings(LEASEHOLD=given), pytest.raises(ImproperlyConfigured, match=words):
        ours.configuration()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"ENGINE": SQLITE, "NAME": ":memory:"}, r"DATABASES\['default'\]\['NAME'\].*plain file"),
        ({"ENGINE": SQLITE, "NAME": "file:x?mode=memory"}, r"DATABASES\['default'\]\['NAME'\].*plain file"),
        ({"ENGINE": POSTGRES, "NAME": "shop", "OPTIONS": {"assume_role": "app"}}, "assume_role"),
        ({"ENGINE": "django.db.backends.dummy"}, r"DATABASES\['default'\] is on unknown"),
    ],
)
def test_a_database_that_cannot_hold_jobs_is_named(monkeypatch, place, words):
    with pytest.raises(ImproperlyConfigured, match=words):
        url_of(monkeypatch, **place)
