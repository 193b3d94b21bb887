"""What several components have in common: what both ends of a wire compute alike, and how processes end and clean up.

Process: any. In and out: plain values. Imports: the standard library and llguidance; no component.
"""
