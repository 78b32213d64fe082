"""Who serves what: subjects, groups, brokers, routes, appointments and allocations."""
