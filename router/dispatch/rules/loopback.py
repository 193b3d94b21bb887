"""Which addresses may be dialled without TLS."""

import ipaddress


def check_loopback(address: str) -> None:
    """Raises ValueError unless plaintext to this address stays on the machine."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ValueError(f"{address}: plaintext is allowed only to unix sockets and loopback; give --tls-dir")
