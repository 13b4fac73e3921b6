"""Faces of the product. Each parses, calls `operations`, and renders; none knows its siblings."""
