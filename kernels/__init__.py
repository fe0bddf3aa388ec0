"""The overlap model as pure functions: arrays in, arrays out; no files, no clock, no configuration, no print.

Read model.py first.  Nothing is imported here, so that a part of it costs no more than itself.
"""
