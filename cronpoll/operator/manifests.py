"""What is applied to a cluster, described once: the definition of KronJobs, rights, the Deployment
and what belongs to it. `packaging/kubernetes/` is written from here, as a kustomize base and as a
Helm chart; a test compares both.

Every right has its reason beside it, and none is there that a test cannot do without.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from cronpoll import __version__
from cronpoll.operator.crd import crd
from cronpoll.operator.fields import GROUP, PLURAL

NAME: Final = "kron-operator"
NAMESPACE: Final = "kron-system"
PORT: Final = 8080
USER: Final = 10001
_LABELS: Final = {"app.kubernetes.io/name": NAME}

Object = dict[str, Any]


class Right(NamedTuple):
    group: str
    resource: str
    verb: str
    why: str


RIGHTS: Final = (
    Right(GROUP, PLURAL, "list", "what there is, at the start and every few minutes"),
    Right(GROUP, PLURAL, "watch", "what changes"),
    Right(GROUP, PLURAL, "get", "one again, if somebody else was faster"),
    Right(GROUP, f"{PLURAL}/status", "patch", "the ledger, and what people read"),
    Right("batch", "jobs", "list", "which Jobs run, before one is started"),
    Right("batch", "jobs", "watch", "when a Job ends"),
    Right("batch", "jobs", "get", "whose a Job is that has the name already"),
    Right("batch", "jobs", "create", "the Job of a period"),
    Right(
        "batch", "jobs", "delete", "history limits, concurrencyPolicy Replace, Jobs created in vain"
    ),
    Right("batch", "jobs", "patch", "a Job starts once the ledger knows it"),
    Right("", "events", "create", "what kubectl describe shows"),
)
LEASE_RIGHTS: Final = (
    Right("coordination.k8s.io", "leases", "get", "who works"),
    Right("coordination.k8s.io", "leases", "create", "the first to begin"),
    Right("coordination.k8s.io", "leases", "update", "going on, and giving up"),
)


def rules(rights: tuple[Right, ...]) -> list[Object]:
    """As a Role has them: one rule for each resource."""
    found: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        found.setdefault((right.group, right.resource), []).append(right.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for (group, resource), verbs in found.items()
    ]


def _metadata(name: str = NAME, namespace: str | None = NAMESPACE) -> Object:
    place = {} if namespace is None else {"namespace": namespace}
    return {"name": name, **place, "labels": dict(_LABELS)}


def _bound(kind: str, name: str, role: str, namespace: str | None) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }


def rbac(*, namespaced: bool) -> list[Object]:
    """Rights on all KronJobs of the cluster, or of the operator's own namespace."""
    kind = "Role" if namespaced else "ClusterRole"
    place = NAMESPACE if namespaced else None
    api = "rbac.authorization.k8s.io/v1"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(),
        },
        {
            "apiVersion": api,
            "kind": kind,
            "metadata": _metadata(NAME, place),
            "rules": rules(RIGHTS),
        },
        _bound(kind, NAME, NAME, place),
        {
            "apiVersion": api,
            "kind": "Role",
            "metadata": _metadata(f"{NAME}-lease"),
            "rules": rules(LEASE_RIGHTS),
        },
        _bound("Role", f"{NAME}-lease", f"{NAME}-lease", NAMESPACE),
    ]


def deployment(*, namespaced: bool) -> Object:
    arguments = ["run", f"--listen=0.0.0.0:{PORT}"]
    own = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    env = [{"name": "KRON_NAMESPACE", "valueFrom": own}] if namespaced else []

    def probe(path: str, period: int, failures: int) -> Object:
        return {
            "httpGet": {"path": path, "port": "http"},
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        }

    container = {
        "name": NAME,
        "image": f"cronpoll:{__version__}",
        "command": [NAME],
        "args": arguments,
        **({"env": env} if env else {}),
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": probe("/healthz", 20, 6),
        "readinessProbe": probe("/readyz", 5, 3),
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": dict(_LABELS)},
            "template": {
                "metadata": {"labels": dict(_LABELS)},
                "spec": {
                    "serviceAccountName": NAME,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                },
            },
        },
    }


def around() -> list[Object]:
    """What keeps one of two operators alive, and where metrics are."""
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(_LABELS)}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(),
            "spec": {
                "selector": dict(_LABELS),
                "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
            },
        },
    ]


def service_monitor() -> Object:
    """For the Prometheus operator; an example, because its kind need not exist."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _metadata(),
        "spec": {
            "selector": {"matchLabels": dict(_LABELS)},
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
        },
    }


def everything(*, namespaced: bool) -> list[Object]:
    """All that a cluster needs, in the order in which it is applied."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    return [
        crd(),
        namespace,
        *rbac(namespaced=namespaced),
        deployment(namespaced=namespaced),
        *around(),
    ]


# -- files -----------------------------------------------------------------------------------------


def text(*objects: Object) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """Without anchors: the same labels twice are two labels for people."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    return "---\n".join(
        yaml.dump(json.loads(json.dumps(each)), Dumper=Plain, sort_keys=False, width=100)
        for each in objects
    )


_HEAD: Final = "# Written by python -m tests.tools.pages from cronpoll/operator/manifests.py.\n"
_CHOICE: Final = "{{- if .Values.namespaced }}\n%s{{- else }}\n%s{{- end }}\n"
_VALUES: Final = (
    _HEAD
    + f"""# The image that packaging/Containerfile builds, in your registry.
image: cronpoll:{__version__}
replicas: 2
# true: KronJobs of the release's namespace only, with a Role instead of a ClusterRole.
namespaced: false
# true: a ServiceMonitor for the Prometheus operator.
serviceMonitor: false
"""
)


def _chart(document: str) -> str:
    """What is the same in all clusters, as a template of what is not."""
    changed = document.replace(f"namespace: {NAMESPACE}", "namespace: {{ .Release.Namespace }}")
    changed = changed.replace(f"image: cronpoll:{__version__}", "image: {{ .Values.image }}")
    return changed.replace("replicas: 2", "replicas: {{ .Values.replicas }}")


def files() -> dict[str, str]:
    """The directory packaging/kubernetes, by path."""
    names = ("crd.yaml", "namespace.yaml", "rbac.yaml", "deployment.yaml", "around.yaml")
    wide = everything(namespaced=False)

    def kustomization(resources: tuple[str, ...]) -> str:
        return _HEAD + text(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": list(resources),
            }
        )

    def both(make: Any) -> str:
        return _HEAD + _CHOICE % tuple(
            _chart(text(*make(namespaced=namespaced))) for namespaced in (True, False)
        )

    chart = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "KronJobs: cron in Kubernetes with a reason for every period.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
    }
    monitor = _chart(text(service_monitor()))
    return {
        "base/kustomization.yaml": kustomization(names),
        "base/crd.yaml": _HEAD + text(wide[0]),
        "base/namespace.yaml": _HEAD + text(wide[1]),
        "base/rbac.yaml": _HEAD + text(*rbac(namespaced=False)),
        "base/deployment.yaml": _HEAD + text(deployment(namespaced=False)),
        "base/around.yaml": _HEAD + text(*around()),
        "namespaced/kustomization.yaml": kustomization(("operator.yaml",)),
        "namespaced/operator.yaml": _HEAD + text(*everything(namespaced=True)),
        "servicemonitor.yaml": _HEAD + text(service_monitor()),
        "chart/Chart.yaml": _HEAD + text(chart),
        "chart/values.yaml": _VALUES,
        "chart/crds/crd.yaml": _HEAD + text(crd()),
        "chart/templates/rbac.yaml": both(rbac),
        "chart/templates/deployment.yaml": both(
            lambda *, namespaced: [deployment(namespaced=namespaced)]
        ),
        "chart/templates/around.yaml": _HEAD + _chart(text(*around())),
        "chart/templates/servicemonitor.yaml": _HEAD
        + "{{- if .Values.serviceMonitor }}\n"
        + monitor
        + "{{- end }}\n",
    }
