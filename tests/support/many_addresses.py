"""Loaded by schemathesis: each of its connections comes from an address of its own.

The relay delays its answers to an address that has sent wrong tokens, by up to 5 seconds, and schemathesis sends many.
"""
import itertools

from urllib3.connection import HTTPConnection

numbers = itertools.count()
connect = HTTPConnection.connect


def connect_from_another_address(self):
    number = next(numbers)
    self.source_address = (f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0)
    connect(self)


HTTPConnection.connect = connect_from_another_address
