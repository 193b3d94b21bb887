"""API keys of the routers: what is wrong with them, and until when routers with other keys may serve.

    apiKeys are set, or name another Secret ──> new routers, which have the new keys, replace the old ones one by one
                                       `──────> after REPLACE_S all old ones are stopped, ready replacement or not

A router without a valid key is ready and refuses every request, so a missing Secret does not keep the old routers.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from octavo.operator.api.v1alpha1 import ApiKeys, InferenceService
from octavo.operator.groups import names
from octavo.operator.groups.groups import deleting, ready, timestamp, unix
from octavo.operator.groups.snapshot import Object, RouterKeys, Snapshot
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.diagnosis import ended, is_worker
from octavo.operator.specs.router import KEYS
from octavo.shared.key_problem import KeyProblem

REPLACE_S = 60.0  # for routers with other keys; a kubelet takes as long to bring another content of a Secret
POLL_S = 10.0  # between two looks at the keys of a router


@dataclass(frozen=True, slots=True)
class KeyState:
    """cause: what is wrong with the desired keys. all_refused: no router has a valid one. outdated: number of routers
    that serve with other keys, or without. since: Unix time from which the present keys are desired; None: no keys."""

    cause: Cause | None = None
    all_refused: bool = False
    outdated: int = 0
    since: float | None = None

    def is_overdue(self, now: float) -> bool:
        """Routers with other keys must be stopped, even if no other router is ready."""
        return self.outdated > 0 and self.since is not None and now - self.since >= REPLACE_S

    def changes_after(self, now: float) -> float | None:
        """Seconds until `is_overdue` may become true; None: never."""
        if self.outdated == 0 or self.since is None or self.is_overdue(now):
            return None
        return self.since + REPLACE_S - now + 0.1


def key_state(service: InferenceService, snapshot: Snapshot, now: float) -> KeyState:
    """The state of the API keys of a service's routers. now: Unix time in seconds."""
    keys = service.spec.router.api_keys
    if keys is None:
        return KeyState()
    pods = [pod for pod in snapshot.pods if not is_worker(pod) and not deleting(pod) and not ended(pod)]
    current = [pod for pod in pods if _source(pod) == keys]
    serving = {
        str(pod["metadata"]["name"]): report.keys
        for pod in current
        if ready(pod) and (report := snapshot.routers.get(str(pod["metadata"].get("uid")))) and report.keys
    }
    return KeyState(
        cause=_cause(keys, serving),
        all_refused=bool(serving) and not any(report.valid for report in serving.values()),
        outdated=len(pods) - len(current),
        since=_since(snapshot.router, keys, now),
    )


def annotation(service: InferenceService, state: KeyState) -> Mapping[str, str]:
    """The annotation of the Deployment that keeps `since`; none without keys."""
    keys = service.spec.router.api_keys
    if keys is None or state.since is None:
        return {}
    kept = {"secret": keys.secret_name, "entry": keys.key, "since": timestamp(state.since)}
    return {names.KEYS_SINCE: json.dumps(kept)}


def has_keys(pod: Object) -> bool:
    """True for a router pod that mounts a Secret of keys."""
    return not is_worker(pod) and _source(pod) is not None


def _source(pod: Object) -> ApiKeys | None:
    """The Secret and the entry that a router pod mounts; None: it needs no keys."""
    for volume in pod["spec"].get("volumes") or ():
        if volume["name"] == KEYS and "secret" in volume:
            return ApiKeys(volume["secret"]["secretName"], volume["secret"]["items"][0]["key"])
    return None


def _since(deployment: Object | None, keys: ApiKeys, now: float) -> float:
    """The time in the annotation, if it is of these keys, else `now`."""
    try:
        kept = json.loads(names.annotation(deployment or {"metadata": {}}, names.KEYS_SINCE))
        since = unix(kept["since"]) if (kept["secret"], kept["entry"]) == (keys.secret_name, keys.key) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        since = None
    return now if since is None else min(since, now)


def _cause(keys: ApiKeys, reports: Mapping[str, RouterKeys]) -> Cause | None:
    """The worst cause, with the first pod that has it."""
    broken = [(pod, report) for pod, report in sorted(reports.items()) if report.problem is not None]
    if not broken:
        return None
    pod, report = min(broken, key=lambda one: (one[1].valid, one[1].problem != KeyProblem.MISSING))
    refused = _refused(reports.values())
    if report.problem == KeyProblem.MISSING:
        return Cause(
            "SecretMissing",
            f"{pod}: there is no Secret {keys.secret_name} with an entry {keys.key} in this namespace; {refused}; "
            f"create it: kubectl create secret generic {keys.secret_name} --from-file={keys.key}=FILE",
        )
    rest = "the keys of the other lines are valid" if report.valid else refused
    return Cause("KeysUnusable", f"{pod}: Secret {keys.secret_name}, entry {keys.key}: {report.message}; {rest}")


def _refused(reports: Iterable[RouterKeys]) -> str:
    found = [report.valid for report in reports]
    if not any(found):
        return "every request is refused"
    return f"{found.count(False)} of {len(found)} routers refuse every request"
