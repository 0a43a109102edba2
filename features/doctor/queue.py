"""The checks of the queue."""

from features.doctor.process import doctor_part

PART = doctor_part("queue")
