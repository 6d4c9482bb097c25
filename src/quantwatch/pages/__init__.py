"""What people look at: the live page and the incident report."""
