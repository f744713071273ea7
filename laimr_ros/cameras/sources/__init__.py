"""Sources of frames: image directory, video file, V4L2 device, CloudGripper robot, drawn cell."""
