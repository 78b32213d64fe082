"""Makes a volume for each claim, as the provisioner of a cloud does: ``python -m cluster.volumes --server … --keys …``.

Volumes are of the kind `local`: they stay with their node, and unlike `hostPath` they honour fsGroup. With ``--folder``
each one is a directory there, which goes when its volume does; without, nobody looks at what is in a volume, since the
pods are played. A claim that asks for more gets it at once.

What is seen is compared with what should be, whichever event came; so a watch that begins anew repairs what was missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any

from cluster.api import Api, Refused
from cluster.plane import PROVISIONER
from cluster.programs import wait_until

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
PROVISIONER_OF_CLAIM = "volume.kubernetes.io/storage-provisioner"
PROVISIONER_OF_VOLUME = "pv.kubernetes.io/provisioned-by"
NODE = "volume.kubernetes.io/selected-node"
NOWHERE = "/volumes"
RETRY_SECONDS = 60.0

Object = dict[str, Any]


class Provisioner:
    def __init__(self, api: Api, folder: Path | None) -> None:
        self._api = api
        self._folder = folder

    def follow(self) -> None:
        """For ever."""
        threading.Thread(target=self._watch, args=(VOLUMES, self.look_at_volume), daemon=True).start()
        self._watch(CLAIMS, self.look_at_claim)

    def _watch(self, path: str, look: Any) -> None:
        while True:
            try:
                for kind, found in self._api.watch(path):
                    if kind in {"ADDED", "MODIFIED"}:
                        look(found)
            except (OSError, HTTPException, Refused) as error:
                print(f"{path}: {error}; once more", file=sys.stderr, flush=True)
                wait_until("the API server is back", self._api.is_ready, RETRY_SECONDS)

    def look_at_claim(self, claim: Object) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        notes = metadata.get("annotations", {})
        if "deletionTimestamp" in metadata or notes.get(PROVISIONER_OF_CLAIM) != PROVISIONER:
            return
        if not spec.get("volumeName"):
            if node := notes.get(NODE):
                self._make(claim, node)
        elif claim.get("status", {}).get("phase") == "Bound":
            self._grow(claim)

    def look_at_volume(self, volume: Object) -> None:
        metadata = volume["metadata"]
        ours = metadata.get("annotations", {}).get(PROVISIONER_OF_VOLUME) == PROVISIONER
        left = volume.get("status", {}).get("phase") in {"Released", "Failed"}
        deleted = volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        if not (ours and left and deleted) or "deletionTimestamp" in metadata:
            return
        if self._folder is not None:
            shutil.rmtree(self._folder / metadata["name"], ignore_errors=True)
        self._unless({404}, "DELETE", f"{VOLUMES}/{metadata['name']}")

    def _make(self, claim: Object, node: str) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        name = f"pvc-{metadata['uid']}"
        if self._folder is not None:
            (self._folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONER_OF_VOLUME: PROVISIONER}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec["storageClassName"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "local": {"path": f"{self._folder or NOWHERE}/{name}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "uid": metadata["uid"],
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                },
            },
        }
        self._unless({409}, "POST", VOLUMES, volume)

    def _grow(self, claim: Object) -> None:
        """The volume first: a claim says only what its volume has."""
        wanted = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
        if claim["status"].get("capacity") == wanted:
            return
        metadata = claim["metadata"]
        change = {"spec": {"capacity": wanted}}
        self._unless({404}, "PATCH", f"{VOLUMES}/{claim['spec']['volumeName']}", change)
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
        status = {"capacity": wanted, "conditions": None, "allocatedResources": None}
        self._unless({404}, "PATCH", path, {"status": status})

    def _unless(self, allowed: set[int], method: str, path: str, body: Object | None = None) -> None:
        """Somebody may have been faster."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            self._api.send(method, path, body, kind)
        except Refused as refused:
            if refused.status not in allowed:
                raise


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--keys", required=True, type=Path)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    Provisioner(Api(given.server, given.keys), given.folder).follow()


if __name__ == "__main__":
    main()
