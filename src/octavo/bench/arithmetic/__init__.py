"""The arithmetic of a benchmark: when requests are sent, which they are, and what their times amount to.

Process: `octavo bench`. In: options, datasets' records, and the times of answers. Out: requests, figures, reports.
Imports: the standard library and itself. No clock, no network, no files; a random generator is an argument.
"""
