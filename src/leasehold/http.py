"""The HTTP API: `from leasehold.http import create_app, router`. Needs the extra: `pip install 'leasehold[server]'`.

api = create_app(app)                                       # for any ASGI server; or: leasehold serve mymodule:app
mine.include_router(router(app, hosts=["api.example.org"])) # inside your own FastAPI app
"""

from leasehold.domain.errors import need_extra as _need_extra

_need_extra("server", "fastapi")

from leasehold.surfaces.http.api import create_app, router  # noqa: E402 - needs the extra

__all__ = ["create_app", "router"]
