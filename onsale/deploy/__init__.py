"""Generates the configuration of nginx and HAProxy from the table of routes."""
