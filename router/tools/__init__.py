"""Tools of chat requests: what a client offers, and the calls that are found in an answer's text.

All of it is pure: text in, events out. A model writes calls in the format that it was trained on; formats.py knows
which that is, and each format has one parser.
"""
