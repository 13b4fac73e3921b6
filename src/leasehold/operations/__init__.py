"""The operator's verbs: the only door of client and surfaces."""
