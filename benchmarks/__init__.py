"""Measurements, printed as ratios to a floor measured in the same run: machines are noisy."""
