"""Where the operator meets the world: Kubernetes, meta, the lease, people who look."""
