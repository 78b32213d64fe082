"""Messages for later: kept until they are due, then sent to a broker like any other."""
