"""What was measured, as one table: the results of one experiment on one GPU, and every ratio of their times."""
