"""This machine: its cores, its ports, its output and what may be imported."""
