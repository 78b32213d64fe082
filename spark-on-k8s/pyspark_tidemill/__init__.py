"""What Spark looks for by itself: a package of this kind of name, with a ``DefaultSource``."""

from tidemill_spark.source import TidemillSource


class DefaultSource(TidemillSource):
    """``format("tidemill")``."""


__all__ = ["DefaultSource"]
