"""The `octavo run` that a soak disturbs: whether it serves, and what its metrics say."""

import asyncio
import os
import re
import socket
from pathlib import Path

import aiohttp
from support.patience import PATIENCE_S, Bound
from support.soak.configurations import Configuration
from support.soak.process_table import ProcessTable, Role

_POLL_S = 0.3
_LISTENS = "0A"  # of /proc/net/tcp
_METRIC = re.compile(r"^octavo_(?:router|worker)_([^ #]+) ([-0-9.e+]+)$", re.M)
Gauges = dict[str, float]


class Service:
    def __init__(self, url: str, tmpdir: Path, table: ProcessTable, configuration: Configuration) -> None:
        self.url = url
        self._tmpdir, self._table, self._configuration = tmpdir, table, configuration

    async def healthy(self, within_s: float = PATIENCE_S) -> bool:
        """Whether all groups serve and all router processes answer within so long."""
        bound = Bound(within_s)
        while not await self._is_healthy():
            if bound.over:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def _is_healthy(self) -> bool:
        workers = await asyncio.to_thread(self.workers)
        serving = sum(gauges.get("serving") == 1 for gauges in workers.values())
        return serving == self._configuration.groups and await self.routed()

    async def routed(self) -> bool:
        """Whether every router process is there, and one of them is ready."""
        found = [one for one in self._table.scan().values() if one.role is Role.ROUTER_PROCESS and not one.ended]
        if len(found) != self._configuration.router_processes or any(one.stopped for one in found):
            return False
        try:
            timeout = aiohttp.ClientTimeout(total=3)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def workers(self) -> dict[str, Gauges]:
        """Of each group's leader, by the name of its socket."""
        sockets = sorted(self._tmpdir.glob("octavo-*/*-0-metrics.sock"))
        return {path.name.removesuffix("-0-metrics.sock"): _scrape(str(path)) for path in sockets}

    def router(self) -> Gauges:
        """Of all router processes together; empty where none says."""
        return router_gauges(self.url, self._table)


def router_gauges(url: str, table: ProcessTable) -> Gauges:
    """Of all router processes of the `octavo run` at this URL together; empty where none says."""
    routers = [one.pid for one in table.scan().values() if one.role is Role.ROUTER and not one.ended]
    public = int(url.rpartition(":")[2])
    ports = {port for pid in routers for port in _listening(pid)} - {public}
    return next((found for port in ports if (found := _scrape(("127.0.0.1", port)))), {})


def _scrape(address: str | tuple[str, int]) -> Gauges:
    try:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
            client.settimeout(3.0)
            client.connect(address)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            page = b""
            while more := client.recv(1 << 16):
                page += more
    except OSError:
        return {}
    return {name: float(value) for name, value in _METRIC.findall(page.decode())}


def _listening(pid: int) -> list[int]:
    """TCP ports of a process."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inodes.add(os.readlink(descriptor).removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == _LISTENS and line[9] in inodes]
