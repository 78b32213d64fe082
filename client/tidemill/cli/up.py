"""`tidemill up`: a queue on this machine, in this process."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tidemill.cli.failures import CommandFailed, wrong_usage
from tidemill_wire.log_lines import Form

if TYPE_CHECKING:
    from tidemill_wire.declarations import Manifests

SERVER_MODULES = (
    "tidemill_broker",
    "uvloop",
    "numpy",
    "prometheus_client",
    "yaml",
    "sqlalchemy",
    "aiosqlite",
)
DATA_DEFAULT = "./tidemill-data"
CANARY_PORT = 9465
CertificateOption = Annotated[
    str, typer.Option(metavar="FILE", help="A certificate; with it all ports speak TLS.")
]
KeyOption = Annotated[str, typer.Option(metavar="FILE", help="Its private key.")]
ClientCaOption = Annotated[
    str, typer.Option(metavar="FILE", help="Authorities of certificates that clients may show.")
]
CaOption = Annotated[
    str, typer.Option(metavar="FILE", help="Authorities by which its processes trust each other.")
]
TokenOption = Annotated[
    str, typer.Option(metavar="FILE", help="Ask everybody who they are; who shows this token may do all.")
]

CanaryFlag = Annotated[
    bool, typer.Option("--canary", help="Run a canary beside it, which measures what users see.")
]
CanaryPortOption = Annotated[
    int,
    typer.Option(min=0, max=65535, help="Where the canary's page is, for Prometheus; of this machine alone."),
]


def up(
    manifests: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", metavar="MANIFESTS", help="Subjects and consumer groups to declare, as YAML."
        ),
    ] = None,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where messages are kept.")] = Path(DATA_DEFAULT),
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The data port; 0: any free one. Brokers of a cluster take any."),
    ] = 7400,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="The HTTP port; 0: any free one.")] = 7401,
    brokers: Annotated[
        int | None, typer.Option(min=1, max=32, help="Run a cluster of so many broker groups, and meta.")
    ] = None,
    slaves: Annotated[
        int | None, typer.Option(min=0, max=4, help="So many slaves for each master of the cluster.")
    ] = None,
    delays: Annotated[
        int | None, typer.Option(min=0, max=8, help="So many delay groups in the cluster; 1 without it.")
    ] = None,
    canary: CanaryFlag = False,
    canary_port: CanaryPortOption = CANARY_PORT,
    tls_cert: CertificateOption = "",
    tls_key: KeyOption = "",
    tls_client_ca: ClientCaOption = "",
    tls_ca: CaOption = "",
    cluster_token: TokenOption = "",
    log_format: Annotated[
        Form | None,
        typer.Option("--log-format", help="How the log on standard error is written: a line an event."),
    ] = None,
) -> None:
    """Run a queue in the foreground, until Ctrl-C.

    With --brokers, --slaves or --delays it is a cluster: processes on this machine, started again when they end.
    """
    require_server("up")
    if os.path.exists(data) and not os.path.isdir(data):  # of a Path it raises where this user may not look
        raise wrong_usage(f"--data {str(data)!r} is a file: name a folder, it is made when it is missing")
    is_cluster = any(count is not None for count in (brokers, slaves, delays))
    if port == http_port != 0 and not is_cluster:
        raise wrong_usage(f"--port and --http-port are both {port}: choose two different ones")
    check_manifests(manifests or [], alone=not is_cluster)
    check_pair(tls_cert, tls_key)
    # Of a cluster, all processes are told alike.
    locks = {"TLS_CERT": tls_cert, "TLS_KEY": tls_key, "TLS_CLIENT_CA": tls_client_ca, "TLS_CA": tls_ca}
    locks["CLUSTER_TOKEN_FILE"] = cluster_token and made_token(cluster_token)
    os.environ.update({f"TIDEMILL_{name}": value for name, value in locks.items() if value})
    files = [argument for path in manifests or [] for argument in ("-f", str(path))]
    where = ["--data", str(data), "--host", host, "--http-port", str(http_port)]
    where += ["--log-format", log_format.value] if log_format is not None else []
    where += ["--canary", str(canary_port)] if canary else []
    if is_cluster:
        counts = ["--brokers", str(brokers or 1), "--slaves", str(slaves or 0)]
        counts += ["--delays", str(1 if delays is None else delays)]
        become("tidemill_standalone", "cluster", *where, *counts, *files)
    become("tidemill_standalone", "up", *where, "--port", str(port), *files)


def check_pair(cert: str, key: str) -> None:
    """Of a certificate and its key one may be said here and the other by the environment; none alone."""
    for given, other, missing in ((cert, key, "KEY"), (key, cert, "CERT")):
        if given and not other and f"TIDEMILL_TLS_{missing}" not in os.environ:
            raise wrong_usage(
                f"a certificate and its key belong together: add --tls-{missing.lower()} FILE, or leave both out"
            )


def made_token(place: str) -> str:
    """The file, made with a random token when there is none; nobody else may read it."""
    import secrets

    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return place
    except OSError as error:
        raise wrong_usage(
            f"--cluster-token {place!r} cannot be made ({error.strerror}): name a file in a folder that you may write"
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
    return place


def require_server(command: str) -> None:
    """Servers are an extra: say how to get it when it is missing."""
    missing = [module for module in SERVER_MODULES if find_spec(module) is None]
    if missing:
        raise CommandFailed(
            f"`tidemill {command}` needs the server ({', '.join(missing)} not found): pip install 'tidemill[server]'"
        )


def become(package: str, *arguments: str) -> NoReturn:
    """Become that process. -P: a file of the current folder must not stand in for one of its modules."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", package, *arguments])  # noqa: S606


def check_manifests(paths: list[Path], *, alone: bool) -> None:
    """Say what is wrong with a manifest, or is for others than this queue, before anything is started."""
    if paths:
        read_manifests(paths, alone=alone)


def read_manifests(paths: list[Path], *, alone: bool = False) -> Manifests:
    """What they declare; what nobody obeys here is named. ``alone``: in a queue of one broker."""
    import yaml

    from tidemill_wire.declarations import parse_manifest_files
    from tidemill_wire.schema import ManifestError
    from tidemill_wire.unheeded import unheeded

    documents: dict[str, list[object]] = {}
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
            documents[str(path)] = list(yaml.safe_load_all(text))
        except OSError as error:
            raise wrong_usage(
                f"{str(path)!r} cannot be read ({error.strerror}): name a file of manifests"
            ) from None
        except UnicodeDecodeError:
            raise CommandFailed(f"{path}: is not UTF-8: save it as UTF-8 text") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            problem = getattr(error, "problem", None) or "cannot be read"
            raise CommandFailed(f"{path}{place}: is no YAML, {problem}: correct it there") from None
    try:
        manifests = parse_manifest_files(documents)
    except ManifestError as error:
        raise CommandFailed(str(error)) from None
    for one in (*manifests.passed_over, *unheeded(manifests, alone=alone)):
        sys.stderr.write(f"tidemill: {one}\n")
    return manifests
