"""The dashboard: pages made by the server, alive by one stream each. Parse, call operations, render; no SQL."""
