"""Checks of each request, shared by all surfaces that listen: host, origin, token, scope, rate."""
