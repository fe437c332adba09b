"""Whether a result set is fit to be published."""
