"""What the hidden tests check: one module per chapter, named like the chapter's topic.

A released notebook's hidden cells call `grade` of their chapter's module. `spec.py` says what a
chapter's module is made of, `break_it.py` how a question is written that asks to break a function;
`cases.py` has the inputs and `common.py` the mistakes that several chapters share.
"""
