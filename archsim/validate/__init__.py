"""Predictions beside measurements, and the fits that predictions rest on."""
