"""Who holds the replicas: one interface to observe them and to set their number."""
