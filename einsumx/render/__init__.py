"""Views of plans: drawings, their timelines, and source code."""
