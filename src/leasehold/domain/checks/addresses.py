"""Checks that a webhook goes to a public network address, not into our own network."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether the address is public: not private, loopback, link-local (where clouds keep their metadata),
    shared, multicast or reserved, nor an IPv6 address that carries such an IPv4 one."""
    try:
        address: Address = ipaddress.ip_address(text.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return all(_is_public(one) for one in ((mapped,) if mapped else (address, *_carried(address))))


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved


def _carried(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]
