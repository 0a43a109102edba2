"""The checks of the console."""

from features.doctor.endpoint import doctor_part

PART = doctor_part("console")
