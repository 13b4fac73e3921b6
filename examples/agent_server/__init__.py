"""A multi-tenant agent server: one queue per target, pause and resume, a token limit, drain at shutdown."""
