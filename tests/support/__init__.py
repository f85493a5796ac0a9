"""What several tests use: array libraries, small problems, slow versions of the algorithms, counters of the device."""
