"""The version of the run format; raised when a reader of the last version would misread a run."""

SCHEMA_VERSION = 1
