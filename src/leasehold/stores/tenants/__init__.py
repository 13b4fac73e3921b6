"""Stores of tenants: the store of one tenant, opened when it is needed, and one that routes to many."""
