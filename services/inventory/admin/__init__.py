"""The operators' API of stock: event files, blocks, allotments, reconciliation."""
