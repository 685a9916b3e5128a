"""`kron-operator`: the program."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from cronpoll import __version__

_NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
MISSING: Final = (
    "kron-operator: it needs the package kubernetes-asyncio, which is not installed; install "
    "cronpoll[kubernetes]"
)


def _own_namespace() -> str:
    try:
        with open(_NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip() or "default"
    except OSError:
        return "default"


def with_cluster(command: Any) -> Any:
    """The options that say which cluster is meant."""
    for option in (
        click.option(
            "--namespace",
            "-n",
            envvar="KRON_NAMESPACE",
            help="KronJobs of this namespace only; a Role is enough for it. [default: all]",
        ),
        click.option("--context", help="Of the kubeconfig."),
        click.option(
            "--kubeconfig",
            envvar="KUBECONFIG",
            help="Where the cluster is. [default: that of the Pod, or ~/.kube/config]",
        ),
    ):
        command = option(command)
    return command


def needs_client() -> None:
    try:
        import kubernetes_asyncio  # noqa: F401
    except ImportError:
        click.echo(MISSING, err=True)
        sys.exit(1)


@click.group(
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kron-operator")
def main() -> None:
    """KronJobs in Kubernetes: at most one Job per period, at the second that is chosen for it."""


@main.command()
@with_cluster
@click.option(
    "--election/--no-election",
    default=True,
    show_default=True,
    help="Whether only the holder of a Lease works. Without it several operators are safe, too, "
    "but do each other's work.",
)
@click.option("--lease-namespace", help="[default: the namespace of the Pod, or default]")
@click.option("--lease-name", default="kron-operator", show_default=True)
@click.option(
    "--listen",
    default="0.0.0.0:8080",
    show_default=True,
    help="Where /healthz, /readyz and /metrics are; empty: nowhere.",
)
@click.option(
    "--concurrency",
    default=16,
    show_default=True,
    type=click.IntRange(1, 256),
    help="How many KronJobs are worked on at the same time.",
)
@click.option(
    "--relist",
    default=300,
    show_default=True,
    type=click.IntRange(5, 86_400),
    help="Seconds from one full list to the next.",
)
@click.option("--clock-offset", default=0.0, hidden=True, help="Seconds, for tests.")
def run(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    election: bool,
    lease_namespace: str | None,
    lease_name: str,
    listen: str,
    concurrency: int,
    relist: int,
    clock_offset: float,
) -> None:
    """Run the operator, until SIGTERM."""
    needs_client()
    import asyncio

    from cronpoll.operator.server import MissingClusterError
    from cronpoll.operator.service import Settings, serve

    address, _, port = listen.rpartition(":")
    if listen and not port.isdigit():
        raise click.BadParameter("expected ADDRESS:PORT", param_hint="--listen")
    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        elect=election,
        lease_namespace=lease_namespace or namespace or _own_namespace(),
        lease_name=lease_name,
        address=address or "0.0.0.0",  # noqa: S104
        port=int(port) if listen else -1,
        concurrency=concurrency,
        relist=float(relist),
        clock_offset=clock_offset,
    )
    os.umask(0o077)
    try:
        asyncio.run(serve(settings))
    except MissingClusterError as error:
        click.echo(f"kron-operator: {error}", err=True)
        sys.exit(3)


@main.command()
@with_cluster
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def audit(
    kubeconfig: str | None, context: str | None, namespace: str | None, as_json: bool
) -> None:
    """Judge the ledgers of all KronJobs: every period has one outcome, no Job is without a period.

    Exits with 1 if something is wrong.
    """
    needs_client()
    import asyncio

    import msgspec

    from cronpoll.operator.api import ApiError
    from cronpoll.operator.auditing import Verdict, audited
    from cronpoll.operator.server import MissingClusterError, Server
    from cronpoll.runtime.clock import SystemClock

    async def asked() -> Verdict:
        server = await Server.connect(kubeconfig, context)
        try:
            return await audited(server, namespace, SystemClock().wall())
        finally:
            await server.close()

    try:
        verdict = asyncio.run(asked())
    except (MissingClusterError, ApiError) as error:
        click.echo(f"kron-operator: {error}", err=True)
        sys.exit(3)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(verdict), indent=2))
    else:
        for finding in verdict.findings:
            click.echo(f"{finding.kronjob}: {finding.text}")
        click.echo(
            f"{verdict.kronjobs} KronJobs, {verdict.periods} periods, {verdict.jobs} Jobs: "
            f"{len(verdict.findings) or 'nothing'} wrong"
        )
    sys.exit(1 if verdict.findings else 0)


@main.command()
@click.option(
    "--namespaced", is_flag=True, help="For one namespace: a Role instead of a ClusterRole."
)
@click.option("--image", help="The image to run. [default: cronpoll of this version]")
def manifests(namespaced: bool, image: str | None) -> None:
    """Print everything that a cluster needs: kron-operator manifests | kubectl apply -f -"""
    needs_client()
    from cronpoll.operator import manifests as described

    objects = described.everything(namespaced=namespaced)
    if image is not None:
        for each in objects:
            if each["kind"] == "Deployment":
                each["spec"]["template"]["spec"]["containers"][0]["image"] = image
    click.echo(described.text(*objects), nl=False)
