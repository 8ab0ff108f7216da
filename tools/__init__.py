"""Build and set-up programs; none of them is part of the installed package."""
