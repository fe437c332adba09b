"""Times of one GPU from those of another: the model, its calibration, and how far off it is on what it has not seen."""
