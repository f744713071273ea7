"""Where frames come from: files, devices, the CloudGripper testbed, or a drawn cell."""
