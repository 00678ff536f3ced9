"""The architecture zoo: each file holds the typed spec of a block beside its lowering."""
