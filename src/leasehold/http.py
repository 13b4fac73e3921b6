"""The HTTP API: `from leasehold.http import create_app, router`. Needs the extra: `pip install 'leasehold[server]'`.

api = create_app(app)                                       # for any ASGI server; or: leasehold serve mymodule:app
mine.include_router(router(app, hosts=["api.example.org"])) # inside your own FastAPI app
"""

try:
    import fastapi as _fastapi
except ModuleNotFoundError as _error:  # pragma: no cover
    if _error.name != "fastapi":
        raise
    from leasehold.domain.errors import DriverMissing as _DriverMissing

    raise _DriverMissing("fastapi", "server") from None
else:
    del _fastapi

from leasehold.surfaces.http.api import create_app, router

__all__ = ["create_app", "router"]
