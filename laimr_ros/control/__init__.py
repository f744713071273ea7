"""What to do about it: lanes, routing and scaling, without I/O and without a clock."""
