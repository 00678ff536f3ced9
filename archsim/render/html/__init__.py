"""`archsim report`: one file with everything that a comparison rests on, which opens from disk and needs nothing."""
