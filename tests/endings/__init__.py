"""Trainings that end in every way, each bare and recorded by turns: nothing that a user can see may differ but the run."""
