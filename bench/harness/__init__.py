"""The testbed of both sides: databases, servers, load generator and reports."""
