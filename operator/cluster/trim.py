"""Trimming of cached objects to the fields that reconciling reads: a third of the API server's data.

What the operator has noted in an object of its own, in annotations and in kept pod templates, it believes only while it
is the manager of it: a note that another client has written is left out, and so is written again or deleted.
"""

import json

from octavo.operator.cluster.kube import CHILD_KINDS, CONTROLLER_REVISION, FIELD_MANAGER, POD, Object

PREFIX = "octavo.dev/"
_CHILDREN = frozenset(kind.kind for kind in CHILD_KINDS)


def trim(item: Object) -> Object:
    """A copy of the object without the fields that the operator does not read."""
    meta = item["metadata"]
    kept = {**item, "metadata": {**meta, "managedFields": _as_text(meta)}}
    if item.get("kind") in _CHILDREN:
        kept["metadata"] = _believed(kept["metadata"], _own_fields(meta).get("f:metadata") or {})
    if item.get("kind") == POD.kind:
        kept["spec"] = _pod_fields(item.get("spec") or {})
    if item.get("kind") == CONTROLLER_REVISION.kind:
        data = item.get("data") if keeps_own_template(item) else None
        kept["data"] = json.dumps(data, separators=(",", ":"))  # text, for the same reason as below
    return kept


def keeps_own_template(item: Object) -> bool:
    """True if the data of a ControllerRevision is what we have written."""
    return "f:data" in _own_fields(item["metadata"])


def _pod_fields(spec: Object) -> Object:
    """Of a pod's spec: its node, its scheduling gates, and its Secret volumes for `planning/routers/keys.py`."""
    secrets = [volume for volume in spec.get("volumes") or () if "secret" in volume]
    kept = {key: spec[key] for key in ("nodeName", "schedulingGates") if key in spec}
    return kept | ({"volumes": secrets} if secrets else {})


def _own_fields(meta: Object) -> Object:
    """fieldsV1 of our own apply; {} if there is none."""
    return next((entry.get("fieldsV1") or {} for entry in meta.get("managedFields") or () if _is_own(entry)), {})


def _believed(meta: Object, own: Object) -> Object:
    """The metadata without annotations of ours that others have set. own: the part of fieldsV1."""
    annotations, ours = meta.get("annotations") or {}, own.get("f:annotations") or {}
    kept = {key: text for key, text in annotations.items() if not key.startswith(PREFIX) or f"f:{key}" in ours}
    return meta if len(kept) == len(annotations) else {**meta, "annotations": kept}


def _as_text(meta: Object) -> list[Object]:
    """managedFields of our own applies, for `semantic.fields_to_remove`: as text, a sixth of the parsed size."""
    return [
        {**entry, "fieldsV1": json.dumps(entry.get("fieldsV1") or {}, separators=(",", ":"))}
        for entry in meta.get("managedFields") or ()
        if _is_own(entry)
    ]


def _is_own(entry: Object) -> bool:
    is_apply = entry.get("operation") == "Apply" and not entry.get("subresource")
    return is_apply and entry.get("manager") == FIELD_MANAGER
