"""Other implementations of SASRec, each in a process of its own.

None of their code is here. `pmixer_peer` runs the program of a checkout of
SASRec.pytorch, `recbole_peer` and `rectools_peer` what is installed in the
Python that runs them.
"""
