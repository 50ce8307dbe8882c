"""Evaluation: test images, corrupted test images and what else a trained network shows."""
