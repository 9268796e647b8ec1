"""Interactive figures (filled in below)."""


def setup(app):
    pass
