"""Which hosts can only be this machine."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host, without a port, can only be this machine."""
    name = host.removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def strip_port(host: str) -> str:
    """Return the host of a ``Host`` header."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
