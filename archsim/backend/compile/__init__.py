"""A step of fixed shape as a flat list of calls: neighbours that can run together, the compiler, the program."""
