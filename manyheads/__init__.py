"""Many Heads: multi-head attention, one chapter a module, in NumPy.

`python -m manyheads` shows four tokens going through four heads.
"""
