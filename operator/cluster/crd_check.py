"""Check that the cluster's CRD has every field of this operator. Helm does not upgrade a CRD of an older chart, and the
API server silently drops unknown fields; so the operator refuses to start with an old CRD.

The check reads the OpenAPI document, which every account may read, and not the CRD, which needs a ClusterRole.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.operator.api.schema import service_schema
from octavo.operator.cluster.kube import SERVICE_CR, Kube, KubeError
from octavo.operator.errors import OperatorError

DOCUMENT = f"/openapi/v3/apis/{SERVICE_CR.api_version}"
UPGRADE_S = 20.0  # after a CRD changes the document lags a little
RETRY_S = 2.0
Schema = Mapping[str, Any]  # Any: OpenAPI JSON

log = logging.getLogger(__name__)


class OldCRD(OperatorError):
    """The cluster's CRD lacks fields of this operator; the message names them and the command to upgrade."""


async def wait_for_crd(kube: Kube) -> None:
    """Wait until the CRD is installed and complete. Raises OldCRD if it is incomplete for UPGRADE_S."""
    give_up, reported = time.monotonic() + UPGRADE_S, False
    while True:
        missing = await _missing(kube)
        if missing is None:
            await asyncio.sleep(RETRY_S)
            continue
        if not missing:
            return
        if missing != ["spec"] and time.monotonic() > give_up:
            raise OldCRD(
                f"the CRD inferenceservices.octavo.dev is older than this operator and lacks {', '.join(missing)}: "
                "upgrade it with `octavo crd | kubectl apply --server-side -f -`"
            )
        if missing == ["spec"] and not reported:
            log.error("the CRD inferenceservices.octavo.dev is not installed: `octavo crd | kubectl apply -f -`")
            reported = True
        await asyncio.sleep(RETRY_S)


async def _missing(kube: Kube) -> list[str] | None:
    """Paths of the fields that the cluster lacks; None if the document cannot be read."""
    try:
        document = await kube.call("GET", DOCUMENT)
    except KubeError as error:
        if error.status == 404:
            return ["spec"]
        log.warning("cannot read the API's description: %s", error)
        return None
    for schema in document.get("components", {}).get("schemas", {}).values():
        kinds = schema.get("x-kubernetes-group-version-kind") or []
        if any(kind.get("kind") == SERVICE_CR.kind for kind in kinds):
            return list(missing_fields(service_schema(), schema))
    return ["spec"]


def missing_fields(required: Schema, served: Schema, path: str = "") -> Iterator[str]:
    """Paths of the properties that `served` lacks; a missing object is named once, without its fields."""
    for name, schema in (required.get("properties") or {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        where = f"{path}.{name}" if path else name
        found = (served.get("properties") or {}).get(name)
        if found is None:
            yield where
        else:
            yield from missing_fields(schema, found, where)
    if "items" in required:
        yield from missing_fields(required["items"], served.get("items") or {}, f"{path}[]")
