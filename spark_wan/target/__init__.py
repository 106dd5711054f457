"""A Delta table as the target of an apply: decode, deduplicate, judge, resolve, record, write."""
