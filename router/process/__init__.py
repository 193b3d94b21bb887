"""The processes of a router: the parent that starts, replaces and drains them, and what one of them is made of.

Process: process_manager.py, metrics_endpoint.py: the parent; process.py: `python -m octavo.router.process.process`.
In: flags and signals. Out: listening sockets, exit codes. Imports: every package of router.
"""
