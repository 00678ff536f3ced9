"""`archsim ui`: the page in which one picks a model, a device and a load, and sees the answer while one drags."""
