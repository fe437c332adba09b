"""EIE (ISCA 2016)."""
