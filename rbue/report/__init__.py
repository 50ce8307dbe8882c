"""From finished runs to files for readers. Nothing in here imports torch: a laptop rebuilds everything in seconds."""
