"""Where the world comes in: the database, the loop, the HTTP port. The one part of the room that may do."""
