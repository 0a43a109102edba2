"""The voice: everybody who waits, buys or has bought hears here what changes, each change framed once for all."""
