"""The command ``laimr``."""
