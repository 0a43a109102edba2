"""The console's API: sign-in, events, figures, the report, the stream, and the pages."""
