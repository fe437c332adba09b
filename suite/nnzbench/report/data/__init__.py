"""What pages share besides tables and figures: text as Markdown, words of every caption, printed numbers, networks."""
