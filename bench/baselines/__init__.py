"""The designs we compare with: as textbooks draw them, tuned as fairly as we know how."""
