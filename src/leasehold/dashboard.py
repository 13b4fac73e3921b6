"""The dashboard as an ASGI app: `from leasehold.dashboard import create_dashboard`. Needs the extra:
`pip install 'leasehold[server]'`.

leasehold serve mymodule:app                                         # at /dashboard/, beside the API
mine.mount("/ops", create_dashboard(app, hosts=["ops.example.org"]))  # inside your own ASGI app
"""

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ModuleNotFoundError as _error:  # pragma: no cover
    if _error.name not in ("jinja2", "starlette"):
        raise
    from leasehold.domain.errors import DriverMissing as _DriverMissing

    raise _DriverMissing(_error.name, "server") from None
else:
    del _jinja2, _starlette

from leasehold.surfaces.dashboard.mount import create_dashboard

__all__ = ["create_dashboard"]
