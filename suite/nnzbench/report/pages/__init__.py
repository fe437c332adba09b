"""What pages are made of: their declaration, what they look at, and their tables."""
