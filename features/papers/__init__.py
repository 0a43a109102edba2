"""Tickets and receipts as PDF, and the show as a calendar file."""
