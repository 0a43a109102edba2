"""Records of measurements: saved, dated, tied to the code they measured, shown as tables and pictures."""
