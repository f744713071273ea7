"""ROS nodes: thin adapters between topics, parameters and the rooms below."""
