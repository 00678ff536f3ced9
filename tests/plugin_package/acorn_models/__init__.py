"""Data and an importer for archsim: what `docs/add-a-package.md` describes."""
