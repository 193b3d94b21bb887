"""What several components have in common: what both ends of a wire compute and declare alike, and how processes
end, clean up, and count as lost.

Process: any. In and out: plain values. Imports: the standard library, llguidance and proto; no component.
"""
