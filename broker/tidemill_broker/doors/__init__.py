"""Where the world comes in: a broker on a disk, on the loop, behind its ports. The one part of the room that may do."""

from tidemill_broker.doors.service import Runs, Service, machine_for, recover

__all__ = ["Runs", "Service", "machine_for", "recover"]
