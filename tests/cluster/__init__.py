"""Real Kubernetes for tests: real API servers and controllers, on nodes that are played or on nodes that run pods."""
