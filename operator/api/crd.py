"""`octavo crd`: prints the CustomResourceDefinition that the chart ships in charts/octavo/files/crds."""

import argparse
from typing import Any

import yaml

from octavo.operator.api.schema import KIND, crd_schema

HEADER = "# Printed by `octavo crd`; do not edit.\n"


def crd() -> dict[str, Any]:  # Any: Kubernetes JSON
    """The CustomResourceDefinition as JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "inferenceservices.octavo.dev", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": "octavo.dev",
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": "inferenceservices",
                "singular": "inferenceservice",
                "shortNames": ["infsvc"],
                "categories": ["octavo"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:  # Any: Kubernetes JSON
    return {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": crd_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            _column("Ready", ".status.ready"),
            _column("Updated", ".status.updatedReplicas", "integer"),
            _column("Reason", ".status.reason"),
            _column("Model", ".status.model.uri"),
            _column("URL", ".status.url"),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
    }


def _column(name: str, path: str, kind: str = "string") -> dict[str, Any]:  # Any: Kubernetes JSON
    return {"name": name, "type": kind, "jsonPath": path}


def text() -> str:
    """The CRD as YAML."""
    return HEADER + yaml.safe_dump(crd(), sort_keys=False, width=140)


def main(argv: list[str]) -> int:
    """Print the CRD."""
    argparse.ArgumentParser(
        prog="octavo crd", description="Print the CustomResourceDefinition of InferenceService."
    ).parse_args(argv)
    print(text(), end="")
    return 0
