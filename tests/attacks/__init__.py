"""What a hostile machine, user or script does to a recording while a training runs."""
