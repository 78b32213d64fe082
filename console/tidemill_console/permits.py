"""What each path of the console needs: its files nothing, for a browser asks for them before it has a token; what is
passed on a name, and whatever the broker asks for, which is shown the same token.
"""

from __future__ import annotations

from tidemill_console.relay import AT, PASSED
from tidemill_console.serving import FILES
from tidemill_host.permits import FREE, KNOWN, Permits

PERMITS: Permits = {
    **{("GET", path): FREE for path in FILES},
    **{(method, AT + path): KNOWN for method, path in PASSED},
}
