"""The checks of the queue."""

from features.doctor.endpoint import doctor_part

PART = doctor_part("queue")
