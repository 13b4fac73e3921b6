"""Leasehold together with other libraries, a module each. They use public names only, as your own code would."""
