"""The operator's verbs and reads: client and surfaces reach a store only through them."""
