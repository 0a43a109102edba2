"""The operators' API of stock: event files, holds, reconciliation."""
