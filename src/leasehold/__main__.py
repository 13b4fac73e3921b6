"""`python -m leasehold` and the `leasehold` command."""

from leasehold.surfaces.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
