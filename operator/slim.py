"""What the caches keep of an object: all that reconciling reads, in the least room. For a thousand services that is a
third of what the API server sends.
"""

import json

from octavo.operator.kube import FIELD_MANAGER, POD, Object


def slim(item: Object) -> Object:
    """The object without what nobody here reads; what was given stays as it is."""
    meta = item["metadata"]
    kept = {**item, "metadata": {**meta, "managedFields": _applied(meta)}}
    if item.get("kind") == POD.kind:
        kept["spec"] = _of_pod(item.get("spec") or {})
    return kept


def _of_pod(spec: Object) -> Object:
    """Its node, and the Secrets that it waits for (`causes.py`). All else is its template's."""
    secrets = [volume for volume in spec.get("volumes") or () if "secret" in volume]
    return ({"nodeName": spec["nodeName"]} if "nodeName" in spec else {}) | ({"volumes": secrets} if secrets else {})


def _applied(meta: Object) -> list[Object]:
    """What we own by apply, for `semantic.leftovers`: as text, a sixth of the tree of small objects that it is."""
    return [
        {**entry, "fieldsV1": json.dumps(entry.get("fieldsV1") or {}, separators=(",", ":"))}
        for entry in meta.get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
