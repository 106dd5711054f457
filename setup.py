"""For tools that still ask for a setup.py. Everything is said in setup.cfg."""

from setuptools import setup

setup()
