"""The dashboard as an ASGI app: `from leasehold.dashboard import create_dashboard`. Needs the extra:
`pip install 'leasehold[server]'`.

leasehold serve mymodule:app                                         # at /dashboard/, beside the API
mine.mount("/ops", create_dashboard(app, hosts=["ops.example.org"]))  # inside your own ASGI app
"""

from leasehold.domain.errors import need_extra as _need_extra

_need_extra("server", "jinja2", "starlette")

from leasehold.surfaces.dashboard.mount import create_dashboard  # noqa: E402 - needs the extra

__all__ = ["create_dashboard"]
