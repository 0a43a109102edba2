"""Pure rules that services and the command line must agree on."""
