"""Running experiments: candidates checked, timed and written down, with peaks and the environment of the run."""
