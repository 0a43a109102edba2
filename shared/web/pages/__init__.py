"""Pages: built files, rendered documents, and problems for people who followed a link."""
