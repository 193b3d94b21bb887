"""Trimming of cached objects to the fields that reconciling reads: a third of the API server's data."""

import json

from octavo.operator.cluster.kube import CONTROLLER_REVISION, FIELD_MANAGER, POD, Object


def trim(item: Object) -> Object:
    """A copy of the object without the fields that the operator does not read."""
    meta = item["metadata"]
    kept = {**item, "metadata": {**meta, "managedFields": _applied(meta)}}
    if item.get("kind") == POD.kind:
        kept["spec"] = _pod_fields(item.get("spec") or {})
    if item.get("kind") == CONTROLLER_REVISION.kind:
        kept["data"] = json.dumps(item.get("data"), separators=(",", ":"))  # text, for the same reason as below
    return kept


def _pod_fields(spec: Object) -> Object:
    """Of a pod's spec: its node, its scheduling gates, and its Secret volumes for `planning/routers/keys.py`."""
    secrets = [volume for volume in spec.get("volumes") or () if "secret" in volume]
    kept = {key: spec[key] for key in ("nodeName", "schedulingGates") if key in spec}
    return kept | ({"volumes": secrets} if secrets else {})


def _applied(meta: Object) -> list[Object]:
    """managedFields of our own applies, for `semantic.fields_to_remove`: as text, a sixth of the parsed size."""
    return [
        {**entry, "fieldsV1": json.dumps(entry.get("fieldsV1") or {}, separators=(",", ":"))}
        for entry in meta.get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
