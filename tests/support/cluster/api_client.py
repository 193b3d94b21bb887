"""The test bed's API server, asked from this process: a kubectl for each look costs as much CPU as dozens of these."""

import http.client
import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TIMEOUT_S = 30.0
Object = dict[str, Any]  # Any: JSON of any kind


class ApiError(Exception):
    """The API server did not answer, or refused; the message holds the request and what it said."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the objects of a kind are."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        where = f"/namespaces/{quote(namespace)}" if self.namespaced else ""
        return f"{root}{where}/{self.plural}" + (f"/{quote(name)}" if name else "")


class ApiClient:
    """As the administrator of the bed whose folder is `state`. Kinds are called as by kubectl, short names included.

    Connections are kept: a new one costs the two sides four times as much CPU as the look that it is for.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._resources: dict[str, Resource] = {}
        self._kept: list[http.client.HTTPSConnection] = []

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """The object, or None where there is none."""
        path = self._resource(kind).path(namespace, name)
        status, answer = self._ask("GET", path)
        return None if status == 404 else _checked(f"GET {path}", status, answer)

    def objects(self, kinds: str, namespace: str = "default", selector: str = "") -> list[Object]:
        """Of one or more kinds, divided by commas."""
        return [item for kind in kinds.split(",") for item in self._list(self._resource(kind), namespace, selector)]

    def apply(self, item: Object, namespace: str = "default", manager: str = "kubectl") -> None:
        """Server-side as this field manager; an unknown field is refused."""
        options = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        self._write("PATCH", item, namespace, options, item["metadata"]["name"])

    def check(self, item: Object, namespace: str = "default") -> None:
        """Whether the object could be made; it is not."""
        self._write("POST", item, namespace, {"dryRun": "All", "fieldValidation": "Strict"})

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Not waited for; harmless where there is none."""
        path = self._resource(kind).path(namespace, name)
        status, answer = self._ask("DELETE", path)
        if status != 404:
            _checked(f"DELETE {path}", status, answer)

    def _list(self, resource: Resource, namespace: str, selector: str) -> list[Object]:
        path = f"{resource.path(namespace)}?{urlencode({'labelSelector': selector})}"
        found = _checked(f"GET {path}", *self._ask("GET", path))
        about = {"apiVersion": resource.api_version, "kind": resource.kind}  # items of a list do not say it
        return [about | item for item in found["items"]]

    def _write(self, method: str, item: Object, namespace: str, options: dict[str, str], name: str = "") -> None:
        resource = self._resource(f"{item['apiVersion']} {item['kind']}")
        path = resource.path(item["metadata"].get("namespace", namespace), name)
        _checked(f"{method} {path}", *self._ask(method, f"{path}?{urlencode(options)}", json.dumps(item)))

    def _resource(self, name: str) -> Resource:
        if name not in self._resources:  # at first, and after a CRD came
            self._resources = self._discovered()
        if name not in self._resources:
            raise ApiError(f"the API server has no kind {name!r}")
        return self._resources[name]

    def _discovered(self) -> dict[str, Resource]:
        """By `apiVersion Kind`, plural, singular and short names; core's and older versions' names win."""
        found: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            for group in _checked(f"GET {root}", *self._ask("GET", root, accept=DISCOVERY))["items"]:
                for version in group["versions"]:
                    prefix = f"{group['metadata']['name']}/" if group["metadata"].get("name") else ""
                    for one in version["resources"]:
                        kind = one["responseKind"]["kind"]
                        namespaced = one["scope"] == "Namespaced"
                        resource = Resource(prefix + version["version"], kind, one["resource"], namespaced)
                        singular, short = one.get("singularResource", kind.lower()), one.get("shortNames", [])
                        for name in (f"{resource.api_version} {kind}", resource.plural, singular, *short):
                            found.setdefault(name, resource)
        return found

    def _ask(
        self, method: str, path: str, body: str | None = None, accept: str = "application/json"
    ) -> tuple[int, bytes]:
        """(status, body)"""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        if self._kept:
            with suppress(OSError, http.client.HTTPException):  # tests make the server come and go
                return self._talk(self._kept.pop(), method, path, body, headers)
        try:
            return self._talk(self._connection(), method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{method} {path}: {error!r}") from error

    def _talk(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except BaseException:
            connection.close()
            raise
        if not answer.will_close:  # else it is closed already
            self._kept.append(connection)
        return status, content

    def _connection(self) -> http.client.HTTPSConnection:
        config = yaml.safe_load((self._state / "admin.conf").read_text())
        pki = self._state / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        server = urlsplit(config["clusters"][0]["cluster"]["server"])
        return http.client.HTTPSConnection(server.netloc, timeout=TIMEOUT_S, context=context)


def _checked(request: str, status: int, answer: bytes) -> Object:
    """The JSON of an answer that is none of failure."""
    if status >= 400:
        said = json.loads(answer)["message"] if answer.startswith(b"{") else answer.decode(errors="replace")
        raise ApiError(f"{request}: {status}\n{said}")
    return dict(json.loads(answer))
