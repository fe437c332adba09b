"""Records to data frames, and which rows make a curve."""
