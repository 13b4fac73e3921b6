"""Faces of the product. Each parses, calls `engine.operations`, and renders; none knows its siblings."""
