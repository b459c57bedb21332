"""What was measured, and how: effort, trials, calibration, and the store that keeps their results."""
