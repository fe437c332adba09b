"""Pages and tables as Markdown."""
