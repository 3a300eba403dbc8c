"""The live page: what runs do now, in a browser.

Invariant: it reads what a run writes and changes nothing of it. A run can't tell whether somebody looks.
"""
