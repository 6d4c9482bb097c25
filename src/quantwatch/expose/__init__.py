"""What quantwatch shows over HTTP: metrics, health, verdicts, a page, and the admin API."""
