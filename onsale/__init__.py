"""The `onsale` command and what it runs: the suite on one machine, the payment sandbox, a simulator, backups."""
