"""`python -m rbue`: what train.py does, from an installed package."""

from rbue.main import main

if __name__ == "__main__":
    main()
