"""``python -m pitstop``: the command line, as the script ``pitstop`` runs it."""

import sys

from pitstop._native import command_line

if __name__ == "__main__":
    sys.exit(command_line())
