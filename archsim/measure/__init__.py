"""Times on the present device: what to time (plan), how (bench and suites), and records that survive a kill.

Planning and writing need no torch; the suites import it when the first point is timed.
"""
