"""Runs past one GPU and one machine: problems are handed to workers of a Dask cluster, rows come to one folder."""
