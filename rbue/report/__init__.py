"""From finished runs to files for readers. Nothing here imports torch, so a laptop rebuilds everything in minutes."""
