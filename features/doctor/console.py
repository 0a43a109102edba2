"""The checks of the console."""

from features.doctor.process import doctor_part

PART = doctor_part("console")
