"""This machine: its cores, its ports and what may be imported."""
