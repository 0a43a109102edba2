"""The console: operators' figures of running sales by one stream, their sign-in, and the pages that show both."""
