"""Containers on a Docker engine of this machine."""
