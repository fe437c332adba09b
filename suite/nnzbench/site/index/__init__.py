"""reports/index.html: every experiment on one page, with filters."""
