"""Address and credentials of the API server: the pod's service account, else a kubeconfig.

kopf reads service accounts, and kubeconfigs with a token or a certificate. Credential plugins (`exec`: EKS, GKE, AKS,
OIDC) need the official client.
"""

import logging
import os
from dataclasses import replace

from octavo.operator.cluster.kopf_import import kopf
from octavo.operator.cluster.kube import KubeUnreachable


def login(logger: logging.Logger) -> kopf.ConnectionInfo:
    """Read the credentials; called again after a 401. Raises KubeUnreachable if there are none."""
    settings = kopf.OperatorSettings()
    try:
        if account := kopf.login_with_service_account(logger=logger, settings=settings):
            return account
        found = kopf.login_with_kubeconfig(logger=logger, settings=settings)
    except (OSError, KeyError, ValueError, TypeError, kopf.LoginError) as error:
        raise KubeUnreachable(f"the kubeconfig cannot be used: {type(error).__name__} {error}") from error
    if found is None:
        raise KubeUnreachable("no credentials: neither a service account token nor a kubeconfig (KUBECONFIG) was found")
    is_known = found.token or found.username or found.certificate_path or found.certificate_data
    return found if is_known or not found.server.startswith("https") else _by_program(found)


def _by_program(found: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
    """The same server with the credentials of the kubeconfig's plugin; without a plugin the user stays anonymous."""
    from kubernetes import client, config  # a large import, needed only here

    loaded = client.Configuration()
    try:
        # The path is given: the client reads the variable once, when it is imported.
        path = os.environ.get("KUBECONFIG")
        config.load_kube_config(path, client_configuration=loaded)  # type: ignore[no-untyped-call]  # it has no types
    except config.ConfigException as error:
        raise KubeUnreachable(f"the kubeconfig cannot be used: {error}") from error
    bearer = loaded.auth_settings().get("BearerToken", {}).get("value") or ""  # "Bearer TOKEN"
    scheme, _, token = bearer.rpartition(" ")
    return replace(
        found,
        scheme=scheme or None,
        token=token or None,
        certificate_path=loaded.cert_file,
        private_key_path=loaded.key_file,
    )
