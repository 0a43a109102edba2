"""Gathering: one gatherer per watched event asks the services and listens to frames, however many watch."""
