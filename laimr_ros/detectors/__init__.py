"""Object detectors behind one small interface: images in, boxes in source pixels out."""
