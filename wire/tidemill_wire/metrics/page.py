"""A metrics page, as text that Prometheus reads. Only what the table has can be put on it, with the labels it has."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill_wire.metrics.powers import Powers
from tidemill_wire.metrics.words import Metric, Table

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Page:
    """Lines of families, each family in one piece, in the order in which they were begun."""

    def __init__(self, table: Table, prefix: str = "") -> None:
        self._table = table
        self._prefix = prefix
        self._families: dict[str, list[str]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """One number; labels in the order of the table."""
        lines, metric = self._family(name)
        lines.append(f"{metric.name}{_labels(metric, labels)} {_number(value)}")

    def put_all(self, rows: Iterable[tuple[str, float]]) -> None:
        """Numbers without labels."""
        for name, value in rows:
            self.put(name, value)

    def begin(self, name: str) -> None:
        """A family that may have no line yet: that it is there is said."""
        self._family(name)

    def put_powers(self, name: str, powers: Powers, *labels: str) -> None:
        """A histogram."""
        lines, metric = self._family(name)
        assert metric.kind == "histogram", name
        said = _labels(metric, labels)
        begun = f"{said[:-1]}," if said else "{"
        for bound, count in powers.buckets():
            lines.append(f'{metric.name}_bucket{begun}le="{bound}"}} {count}')
        lines.append(f"{metric.name}_sum{said} {_number(powers.total)}")
        lines.append(f"{metric.name}_count{said} {powers.count}")

    def to_bytes(self) -> bytes:
        """All of it."""
        return ("\n".join(line for lines in self._families.values() for line in lines) + "\n").encode()

    def _family(self, name: str) -> tuple[list[str], Metric]:
        metric = self._table[self._prefix + name]
        lines = self._families.get(metric.name)
        if lines is None:
            head = [
                f"# HELP {metric.name} {metric.means.translate(ESCAPES)}",
                f"# TYPE {metric.name} {metric.kind}",
            ]
            lines = self._families[metric.name] = head
        return lines, metric


def _labels(metric: Metric, values: tuple[str, ...]) -> str:
    assert len(values) == len(metric.labels), (metric.name, values)
    if not values:
        return ""
    said = ",".join(
        f'{label.name}="{value.translate(ESCAPES)}"'
        for label, value in zip(metric.labels, values, strict=True)
    )
    return f"{{{said}}}"


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(round(value, 6))
