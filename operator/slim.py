"""What the caches keep of an object: all that reconciling reads, in the least room. For a thousand services that is a
third of what the API server sends.
"""

import json

from octavo.operator.kube import FIELD_MANAGER, POD, Object

POD_SPEC = frozenset({"nodeName"})  # the rest of it is the template's, which is compared in the StatefulSet


def slim(item: Object) -> Object:
    """The object without what nobody here reads; what was given stays as it is."""
    meta = item["metadata"]
    kept = {**item, "metadata": {**meta, "managedFields": _applied(meta)}}
    if item.get("kind") == POD.kind:
        kept["spec"] = {key: value for key, value in (item.get("spec") or {}).items() if key in POD_SPEC}
    return kept


def _applied(meta: Object) -> list[Object]:
    """What we own by apply, for `semantic.leftovers`: as text, a sixth of the tree of small objects that it is."""
    return [
        {**entry, "fieldsV1": json.dumps(entry.get("fieldsV1") or {}, separators=(",", ":"))}
        for entry in meta.get("managedFields") or ()
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]
