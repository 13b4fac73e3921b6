"""Many stores behind one: a store of one tenant that is opened when it is needed, and a store that serves many."""
