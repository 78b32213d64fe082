"""Who is who in a test cluster: an authority, what it signs for a day, and the files that clients begin with.

Nothing of it is worth stealing: the keys lie in the folder of a cluster that is gone when its tests are.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

DAYS = "30"
OF_A_SERVER, OF_A_CLIENT = "serverAuth", "clientAuth"


class Authority:
    """A certificate authority in a folder, and the key pair that signs the tokens of service accounts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._key("ca")
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,digitalSignature")
        openssl(
            "req", "-x509", "-new", "-key", self._path("ca.key"), "-sha256", "-days", DAYS, "-subj", "/CN=tests",
            "-out", self._path("ca.crt"), *(word for one in extensions for word in ("-addext", one)),
        )  # fmt: skip
        openssl("genrsa", "-out", self._path("sa.key"), "2048")
        openssl("rsa", "-in", self._path("sa.key"), "-pubout", "-out", self._path("sa.pub"))

    def sign(self, name: str, subject: str, use: str = OF_A_CLIENT, hosts: Iterable[str] = ()) -> None:
        """A certificate ``name.crt`` with its key. ``hosts``: addresses and names at which a server is asked."""
        self._key(name)
        lines = ["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature,keyEncipherment"]
        lines.append(f"extendedKeyUsage={use}")
        known = ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts)
        if known:
            lines.append(f"subjectAltName={known}")
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            Path(f"{work}/extensions").write_text("\n".join(lines))
            openssl(
                "req", "-new", "-key", self._path(f"{name}.key"), "-subj", subject, "-out", f"{work}/asked"
            )
            openssl(
                "x509", "-req", "-in", f"{work}/asked", "-CA", self._path("ca.crt"), "-CAkey", self._path("ca.key"),
                "-set_serial", f"0x{name.encode().hex()[-30:]}", "-sha256", "-days", DAYS,
                "-extfile", f"{work}/extensions", "-out", self._path(f"{name}.crt"),
            )  # fmt: skip

    def client(self, name: str, subject: str, server: str) -> Path:
        """A client that may speak to the API server as this subject: its kubeconfig."""
        self.sign(name, subject)
        cluster = {"server": server, "certificate-authority-data": self._encoded("ca.crt")}
        user = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
            "current-context": "tests",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config, indent=1))  # which is YAML, too
        path.chmod(0o600)
        return path

    def _key(self, name: str) -> None:
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self._path(f"{name}.key"))

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()


def openssl(*words: str) -> None:
    try:
        done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise AssertionError("there is no openssl: install the package openssl") from error
    assert done.returncode == 0, f"openssl {words[0]}: {done.stderr}"
