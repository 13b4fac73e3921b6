"""Integrations with other libraries, one module each. They use only public names, as your own code would."""
