"""The web console: pages for people, and the door that serves them."""
