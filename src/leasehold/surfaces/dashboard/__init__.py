"""The dashboard: pages rendered by the server, each kept up to date by one stream. No SQL."""
