"""A real control plane on loopback, for tests: etcd, kube-apiserver, kube-controller-manager and
kubectl, built from the Go module proxy by the versions pinned in go.mod and go.sum.

    python -m tests.kubernetes.plane             builds it (minutes, the first time), prints where
    CRONPOLL_KUBERNETES_CACHE=DIR                where binaries are kept and looked for; a build of
                                                 other versions is another directory in it
    python -m tests.kubernetes.plane --pin 1.37.1   writes go.mod and go.sum for another release

Helm, for the tests of the chart, is built and kept in the same way.

There are no nodes and no kubelet: Pods stay Pending until a test says how they end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
HELM = HERE.parent / "helm"
"""A module of its own: its libraries have other versions."""
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kubectl", "etcd")
OLDEST = "1.34"
"""The oldest release of Kubernetes that the manual names."""


def cache(module: Path = HERE) -> Path:
    """Where the programs of a Go module are kept."""
    given = os.environ.get("CRONPOLL_KUBERNETES_CACHE")
    base = (
        Path(given)
        if given
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        / "cronpoll"
        / "kubernetes"
    )
    pinned = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes())
    return base / pinned.hexdigest()[:16]


def missing() -> str | None:
    """Why there is no control plane, or None."""
    if all((cache() / each).is_file() for each in PROGRAMS) and (cache(HELM) / "helm").is_file():
        return None
    if shutil.which("go") is None:
        return "a Kubernetes control plane is not built, and go, which builds it, is not installed"
    return None


def release(module: Path = HERE, name: str = "k8s.io/kubernetes") -> str:
    found = re.search(
        rf"^\s*(?:require )?{re.escape(name)} (v[0-9.]+)( // indirect)?$",
        (module / "go.mod").read_text(),
        re.MULTILINE,
    )
    assert found, f"go.mod does not name {name}"
    return found[1]


def build() -> Path:
    """The directory of the binaries; built if they are not there."""
    version = release()
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
        "gitCommit": version,
    }
    flags = " ".join(
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in stamps.items()
    )
    kubernetes = [f"k8s.io/kubernetes/cmd/{each}" for each in PROGRAMS[:3]]
    return _built(
        HERE,
        PROGRAMS,
        (["-ldflags", f"-s -w {flags}", "-o", "./"], kubernetes),
        (["-ldflags", "-s -w", "-o", "etcd"], ["go.etcd.io/etcd/server/v3"]),
    )


def helm() -> Path:
    """Helm; built if it is not there."""
    version = f"-X helm.sh/helm/v3/internal/version.version={release(HELM, 'helm.sh/helm/v3')}"
    command = ["-ldflags", f"-s -w {version}", "-o", "helm"], ["helm.sh/helm/v3/cmd/helm"]
    return _built(HELM, ("helm",), command) / "helm"


def _built(module: Path, programs: tuple[str, ...], *commands: tuple[list[str], list[str]]) -> Path:
    """The directory of a module's programs. Of a command: options, the last of which is a file or a
    directory in there, and packages."""
    there = cache(module)
    if all((there / each).is_file() for each in programs):
        return there
    there.parent.mkdir(parents=True, exist_ok=True)
    tags = "-tags=selinux,notest,grpcnotrace"
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": f"-buildvcs=false -mod=readonly -trimpath {tags}",
    }
    making = there.with_name(f"{there.name}.{os.getpid()}")
    making.mkdir(exist_ok=True)
    # Two at once would compile everything twice: the second waits for the first.
    import fcntl

    with open(there.with_name(f"{there.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if there.exists():
            shutil.rmtree(making)
            return there
        # A registry that hiccups is asked again; what was compiled before is not lost.
        for attempt in range(3):
            done = [
                subprocess.run(
                    ["go", "build", *options[:-1], f"{making}/{options[-1]}", *packages],
                    cwd=module,
                    env=env,
                    check=False,
                )
                for options, packages in commands
            ]
            if all(each.returncode == 0 for each in done):
                break
            if attempt == 2:
                raise SystemExit(f"{', '.join(programs)} could not be built")
            time.sleep(5)
        making.rename(there)
    return there


def pin(version: str) -> None:
    """go.mod and go.sum for a release: once for each upgrade."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"],
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    directory = re.search(r'"Dir": "(.*)"', found)
    assert directory, found
    text = (Path(directory[1]) / "go.mod").read_text()
    go = re.search(r"^go .*$", text, re.MULTILINE)
    debug = re.search(r"^godebug .*$", text, re.MULTILINE)
    staging = re.findall(r"^\s*(k8s\.io/[a-z-]*) => \./staging/", text, re.MULTILINE)
    tools = [
        *(f"k8s.io/kubernetes/cmd/{each}" for each in PROGRAMS[:3]),
        "go.etcd.io/etcd/server/v3",
    ]
    lines = [
        "module cronpoll.test/plane",
        go[0] if go else "",
        debug[0] if debug else "",
        "tool (",
        *tools,
        ")",
    ]
    lines += [f"require k8s.io/kubernetes v{version}", "replace ("]
    lines += [f"{each} => {each} v0.{version.removeprefix('1.')}" for each in staging] + [")", ""]
    (HERE / "go.mod").write_text("\n".join(lines))
    (HERE / "go.sum").unlink(missing_ok=True)
    subprocess.run(["go", "mod", "tidy"], cwd=HERE, check=True)


class Plane:
    """A running control plane. `crds`: a file that is applied before the controllers start: the
    garbage collector looks for new kinds only every 30 seconds."""

    def __init__(self, state: Path, crds: Path | None = None, emulated: str | None = None) -> None:
        self.state, self.crds, self.emulated = state, crds, emulated
        self.bin = build()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = dict(zip(("etcd", "peer", "api", "kcm"), _free_ports(4), strict=True))
        self.url = f"https://127.0.0.1:{self.ports['api']}"
        self.ca = state / "ca.crt"
        self.kubeconfig = state / "kubeconfig"
        self.token = secrets.token_hex(16)
        self._kcm_token = secrets.token_hex(16)

    def __enter__(self) -> Self:
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        subprocess.run(
            [
                "openssl",
                "ecparam",
                "-name",
                "prime256v1",
                "-genkey",
                "-noout",
                "-out",
                str(self.state / "sa.key"),
            ],
            check=True,
            capture_output=True,
        )
        (self.state / "tokens.csv").write_text(
            f'{self.token},admin,admin,"system:masters"\n{self._kcm_token},system:kube-controller-manager,kcm\n'
        )
        self.write_kubeconfig(self.kubeconfig, self.token)
        self.write_kubeconfig(self.state / "kcm.kubeconfig", self._kcm_token)
        try:
            self.start_etcd()
            self.start_apiserver()
            if self.crds is not None:
                self.kubectl("apply", "--server-side", "-f", str(self.crds))
                self.kubectl(
                    "wait", "--for=condition=Established", "--timeout=60s", "-f", str(self.crds)
                )
            self.start_controllers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self.stop(name)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        with open(self.state / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                [str(self.bin / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _ready(self, name: str, url: str, token: str = "") -> None:
        # The server makes its own certificate, and it is not there before it runs.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(
            url, headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if self.running[name].poll() is not None:
                break
            with contextlib.suppress(OSError), opener.open(request, timeout=5) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.1)
        log = (self.state / f"{name}.log").read_text(errors="replace")[-2_000:]
        raise AssertionError(f"{name} is not ready:\n{log}")

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self.ports[each]}" for each in ("etcd", "peer"))
        self._start(
            "etcd", "--name=default", f"--data-dir={self.state / 'etcd'}", "--unsafe-no-fsync", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--log-level=warn",
        )  # fmt: skip
        self._ready("etcd", f"{client}/health")

    def start_apiserver(self) -> None:
        key = str(self.state / "sa.key")
        emulated = [f"--emulated-version={self.emulated}"] if self.emulated else []
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self.ports['api']}", f"--cert-dir={self.state / 'certs'}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={self.state / 'tokens.csv'}", "--authorization-mode=RBAC",
            *emulated,
        )  # fmt: skip
        self._ready("kube-apiserver", f"{self.url}/readyz", self.token)
        # The certificate is a leaf and its CA: the CA alone is to be trusted.
        parts = (
            (self.state / "certs" / "apiserver.crt")
            .read_text()
            .split("-----BEGIN CERTIFICATE-----")
        )
        self.ca.write_text("-----BEGIN CERTIFICATE-----" + parts[2])

    def start_controllers(self) -> None:
        emulated = [f"--emulated-version={self.emulated}"] if self.emulated else []
        self._start(
            "kube-controller-manager", f"--kubeconfig={self.state / 'kcm.kubeconfig'}", "--kube-api-qps=500", "--kube-api-burst=1000",
            "--bind-address=127.0.0.1", f"--secure-port={self.ports['kcm']}", "--leader-elect=false",
            "--use-service-account-credentials=true", f"--flex-volume-plugin-dir={self.state / 'flex'}",
            f"--root-ca-file={self.ca}", f"--service-account-private-key-file={self.state / 'sa.key'}", *emulated,
        )  # fmt: skip
        self._ready("kube-controller-manager", f"https://127.0.0.1:{self.ports['kcm']}/healthz")
        # What admission of Pods waits for shows that the controllers work.
        self._ready(
            "kube-controller-manager",
            f"{self.url}/api/v1/namespaces/default/serviceaccounts/default",
            self.token,
        )

    def write_kubeconfig(
        self, path: Path, token: str, url: str | None = None, namespace: str = "default"
    ) -> Path:
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f'clusters: [{{name: c, cluster: {{server: "{url or self.url}", certificate-authority: "{self.ca}"}}}}]\n'
            f'users: [{{name: u, user: {{token: "{token}"}}}}]\n'
            f"contexts: [{{name: c, context: {{cluster: c, user: u, namespace: {namespace}}}}}]\n"
        )
        path.chmod(0o600)
        return path

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [str(self.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.state / 'kubectl'}", *arguments],
            input=text, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout if done.returncode == 0 else done.stderr


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--pin"]:
        pin(arguments[1])
    elif (reason := missing()) is not None:
        raise SystemExit(reason)
    else:
        print(build())
        print(helm())
