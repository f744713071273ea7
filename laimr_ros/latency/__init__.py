"""What a request will cost: service time, network and queueing."""
