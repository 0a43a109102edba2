"""Reports of a sale: how fans flow through it, its page for the promoter, settlement, and exports."""
