"""The designs to compare with: as textbooks describe them, tuned as fairly as possible."""
