"""Runs containers on a Docker engine of this machine."""
