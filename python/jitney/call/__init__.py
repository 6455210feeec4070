"""What model code is told of a call, and how it fails: the request, its context, its reserve of time, the errors.

The ground floor: every other room may import this one, and it imports none.
"""
