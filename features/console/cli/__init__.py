"""The console's commands: a sale in a terminal, and a rehearsal, which the console runs as a process of its own."""
