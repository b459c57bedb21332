"""Plans for eyes and for other programs: pictures, timelines, code."""
