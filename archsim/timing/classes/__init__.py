"""How long kernels take: one small model per class of kernel, with constants and surfaces that are data.

Every model is written over numbers or arrays alike: the code that prices one op of a graph also prices a table of
200,000 measured kernels.
"""
