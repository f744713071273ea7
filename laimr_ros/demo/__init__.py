"""The demonstration: a whole fleet on one machine, watched and summed up."""
