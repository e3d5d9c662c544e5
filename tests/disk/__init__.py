"""A disk that fails or forgets: what a recording writes is watched, made to fail at any call, or lost as power is lost."""
