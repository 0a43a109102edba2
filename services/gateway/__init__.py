"""The door: fans join the line here, ask how it stands, and fetch their pass when they are called."""
