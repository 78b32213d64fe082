"""Where the metas of QueueClusters listen: at the Services that this operator made for them, and nowhere else.

What a status says of it is for people and programs that look: whoever may write a status must not choose who is shown
the token of a cluster. An operator outside of Kubernetes, which reaches no Service, has a file that says where.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from tidemill_operator import marks
from tidemill_operator.steps import Manifest
from tidemill_operator.store import endpoint_of

logger = logging.getLogger(__name__)


class Places:
    """``path`` is the file with lines ``NAMESPACE/NAME HOST:PORT``, looked at again when it changes; empty: there is
    none.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._seen: tuple[int, int] | None = None
        self._elsewhere: Mapping[str, str] = {}

    def of(self, cluster: Manifest, service: Manifest | None) -> str:
        """``host:port`` of the meta of a QueueCluster, by the Service of its name; empty: it has none yet."""
        metadata = marks.metadata(cluster)
        if self._path is not None:
            self._look(self._path)
        named = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        return self._elsewhere.get(named) or endpoint_of(cluster, service)

    def _look(self, path: Path) -> None:
        try:
            found = path.stat()
        except FileNotFoundError:
            self._seen, self._elsewhere = None, {}
            return
        seen = found.st_mtime_ns, found.st_size
        if seen != self._seen:
            rows = [line.split() for line in path.read_text().splitlines()]
            self._seen, self._elsewhere = seen, {row[0]: row[1] for row in rows if len(row) == 2}
            logger.info("metas_elsewhere file=%s count=%d", path, len(self._elsewhere))
