"""Runs: composed from words, locked, placed on a device, stored as result.json, counted in sweeps."""
