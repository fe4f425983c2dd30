"""``python -m torchcaps``: the command, where its script is not on the PATH."""

from torchcaps.cli.main import main

if __name__ == "__main__":
    main()
