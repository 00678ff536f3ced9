"""One page per command, independent of the format it is printed in."""
