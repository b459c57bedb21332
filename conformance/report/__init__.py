"""A run of the suite: stored, compared, and shown in the terminal, in Markdown and as a page of HTML."""
