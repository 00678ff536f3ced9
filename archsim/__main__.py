"""`python -m archsim`: the same as the command `archsim`."""

from archsim.cli.main import run

if __name__ == "__main__":
    run()
