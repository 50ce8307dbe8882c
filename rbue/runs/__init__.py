"""Runs: how they are composed from arguments, locked, placed on a device, stored, and counted in sweeps."""
