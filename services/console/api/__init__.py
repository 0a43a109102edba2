"""The console's API: sign-in, events, figures, the stream, and the pages."""
