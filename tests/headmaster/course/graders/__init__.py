"""What the hidden tests of the tiny course check."""
