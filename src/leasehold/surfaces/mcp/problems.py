"""MCP errors from our errors. An error of a tool is a result that the model reads and can act on; an error of the
protocol is for the client's code."""

from __future__ import annotations

import logging

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent
from pydantic import ValidationError

from leasehold.domain.errors import (
    InvalidAnswer,
    InvalidInput,
    JobNotFound,
    LeaseholdError,
    ReadTooSlow,
    StoreError,
    TenantNotFound,
)
from leasehold.surfaces.guard.denied import Denied

logger = logging.getLogger("leasehold.mcp")

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (JobNotFound, INVALID_PARAMS),
    (TenantNotFound, INVALID_PARAMS),
    (InvalidInput, INVALID_PARAMS),
    (InvalidAnswer, INVALID_PARAMS),
    (Denied, INVALID_PARAMS),
    (ValidationError, INVALID_PARAMS),
    (LeaseholdError, INTERNAL_ERROR),
)
"""The codes of protocol errors; the first row that fits an error counts."""


def tool_error(error: Exception) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text_of(error))], is_error=True)


def protocol_error(error: Exception) -> MCPError:
    code = next((code for class_, code in _CODES if isinstance(error, class_)), INTERNAL_ERROR)
    return MCPError(code, text_of(error))


def text_of(error: Exception) -> str:
    """The message for the client. An unexpected error is logged; the client gets no details of it."""
    match error:
        case Denied():
            text = error.detail
        case ValidationError():
            text = "; ".join(f"{_place(fault['loc'])}: {fault['msg']}" for fault in error.errors()[:5])
        case ReadTooSlow():
            logger.warning("%s", error)
            text = f"the database took more than {error.seconds:g} s to read that; ask for less at once, or again later"
        case StoreError():
            logger.error("%s: %s", type(error).__name__, error)
            text = "the database cannot be reached or used; see the server's log"
        case LeaseholdError():
            text = str(error)
        case _:
            logger.error("a request failed", exc_info=error)
            text = "internal error; see the server's log"
    return text.encode("utf-8", "replace").decode()


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "arguments"
