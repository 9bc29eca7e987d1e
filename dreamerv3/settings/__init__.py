"""What a user can set: keys, flags, checks, the plan and the log directory."""
