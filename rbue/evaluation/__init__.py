"""Evaluation: on test images, on corrupted test images, and further analyses of a trained network."""
